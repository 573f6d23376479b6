"""Liu et al.'s optimisation-based attack, on one model or on several at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common import adam
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L2, Goal, LInf, Untargeted
from robustassay.threat.rmsd import rmsd

EnsembleLoss = Literal["own", "of the mean"]
"""What each model of an ensemble follows."""


@final
@register("attack", "liu")
@dataclass(frozen=True)
class Liu(Attack[GradientAccess]):
    """Adam on the image (Liu et al. 2017, arXiv:1611.02770).

    The learning rate decides how far it goes; 4/255 and 100 steps are the paper's, and points are projected into the
    ball. It maximises log(1 - p) of the true class, or log p of the target, minus `weight` (the paper's lambda, 0 by
    default) times the difference of the RMSD, on the 0 to 255 scale, from `tau`: from 0 as in the paper's text, or as
    in the alternative objective of its appendix with both of its weights equal.
    """

    info = AttackInfo(
        papers=("1611.02770",),
        formula="u: Adam's update on the gradient of log(1 - p_y(x)), or of log p_y(x) towards a target,\n"
        "   minus weight * |d(x, x0) - tau|; d: RMSD\n"
        "x <- P(x + rate * u), from x0",
        reference="the authors' code",
    )
    access = GradientAccess
    norms = (LInf, L2)

    steps: int = 100
    rate: float = 4 / 255
    weight: float = 0.0
    """Weight of the distance in the loss (lambda in the paper)."""
    tau: float = 0.0
    """Distance (RMSD on the 0 to 255 scale) from which the loss measures."""

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend on the model under attack alone."""
        return self.ascend([view], x0)

    def ascend(self, views: Sequence[GradientAccess], x0: Tensor, loss: EnsembleLoss = "own") -> Tensor:
        """Ascend on several models at once: each has its own Adam, and an image moves by the sum of their updates.

        The views are of the same rows; with more than one, none of these may be done before the end. Each model
        follows its own loss, or its part of the loss of the mean of all probabilities, the paper's equation 6.
        """
        x = x0
        mean, square = (torch.zeros_like(x0)[:, None].repeat_interleave(len(views), 1) for _ in range(2))
        for step in range(1, self.steps + 1):
            found = [view.gradient(x, hidden_or_found) for view in views]
            gradients = torch.stack([gradient for gradient, _ in found], 1)
            if loss == "of the mean":
                shares = shares_in_mean([logits for _, logits in found], views[0].goal)
                gradients = gradients * shares.view(*shares.shape, *(1,) * (x.dim() - 1)).to(gradients.dtype)
            if self.weight:
                gradients = gradients - self.weight * penalty_gradient(x, views[0].ball.centre, self.tau)[:, None]
            mean, square = adam.update_moments(mean, square, gradients)
            x = views[0].ball.project((x + self.rate * adam.direction(mean, square, step).sum(1)).clamp(0, 1))
            x, mean, square = views[0].drop_finished(x, mean, square)
            for view in views[1:]:
                view.drop_finished()
        return x


def penalty_gradient(x: Tensor, x0: Tensor, tau: float = 0.0) -> Tensor:
    """Return the gradient of the difference of the RMSD (0 to 255) from tau, with respect to x in [0, 1].

    At the clean image itself it is zero: there the RMSD has no gradient.
    """
    far, shape = rmsd(x, x0), (-1, *(1,) * (x.dim() - 1))
    scale = (far - tau).sign() * 255**2 / (x0[0].numel() * far.clamp(min=1e-12))
    return (scale.view(shape) * (x.double() - x0.double())).to(x.dtype)


def shares_in_mean(logits: Sequence[Tensor], goal: Goal) -> Tensor:
    """Return, per row and model, the share of its own gradient in that of the loss of the mean of probabilities.

    That loss is the logarithm of the mean of exp(own loss), so the shares are the softmax of the losses.
    """
    return torch.stack([hidden_or_found(answer.double(), goal) for answer in logits], 1).softmax(1)


def hidden_or_found(logits: Tensor, goal: Goal) -> Tensor:
    """Return log(1 - p) of the true class, or log p of the target; one number per row.

    The former is written as -softplus(own - others): its gradient does not vanish where the model is confident.
    """
    if not isinstance(goal, Untargeted):
        return goal.loss(logits)
    index = goal.labels[:, None]
    wide = logits.double()  # rounded once at the end, as in the goal's own loss
    others = wide.scatter(1, index, float("-inf")).logsumexp(1)
    return -F.softplus(wide.gather(1, index).squeeze(1) - others).to(logits.dtype)
