"""Fast adaptive boundary attack, in its targeted form."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from assay.attacks.apgd import likely_classes
from assay.attacks.attack import Attack
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L1, L2, Goal, LInf, Targeted
from assay.threat.hyperplane import onto_hyperplane


@final
@register("attack", "fab")
@dataclass(frozen=True)
class FAB(Attack[WhiteBox]):
    """Walks along the decision boundary towards the clean image (FAB-T; Croce & Hein 2020, arXiv:1907.02044).

    An untargeted goal is pursued through each of the `targets` classes that score best on the clean image, for
    `steps` steps each, and any wrong label counts. A targeted goal has its one class, which must pass whichever
    other class is best at the moment. A step asks twice: for a gradient, and whether the new point has arrived.
    """

    access = WhiteBox
    norms = (LInf, L2, L1)
    seeks_minimum = True

    steps: int = 100
    targets: int = 9
    alpha_max: float = 0.1
    eta: float = 1.05
    beta: float = 0.9

    def __call__(self, view: WhiteBox, x0: Tensor) -> Tensor:
        """Step onto the boundary's tangent; from beyond the boundary, step back towards the clean image."""
        aims = view.pin(likely_classes(view, x0, self.targets))
        x = x0
        for rank in range(aims().shape[1]):
            x = view.ball.centre
            for _ in range(self.steps):
                x = self._step(view, x, aims()[:, rank])
                arrived = view.goal.reached(view.scores(x)).view(-1, *(1,) * (x.dim() - 1))
                back = view.ball.centre + self.beta * (x - view.ball.centre)
                (x,) = view.keep(torch.where(arrived, back, x))
        return x

    def _step(self, view: WhiteBox, x: Tensor, aim: Tensor) -> Tensor:
        """Go to the tangent plane of the boundary, and a little beyond, biased towards the clean image."""
        gradient, logits = view.gradient(x, _lead, aim)
        w, lead = gradient.flatten(1).double(), _lead(logits, view.goal, aim).double()
        here, clean = x.flatten(1).double(), view.ball.centre.flatten(1).double()
        from_here = onto_hyperplane(view.ball.norm, w, -lead, -here, 1 - here)
        from_clean = onto_hyperplane(view.ball.norm, w, (w * (here - clean)).sum(1) - lead, -clean, 1 - clean)
        near, far = (view.ball.norm.size(d).clamp(min=1e-8) for d in (from_here, from_clean))
        alpha = (near / (near + far)).clamp(max=self.alpha_max)[:, None]
        moved = (1 - alpha) * (here + self.eta * from_here) + alpha * (clean + self.eta * from_clean)
        return moved.clamp(0, 1).to(x.dtype).view_as(x)


def _lead(logits: Tensor, goal: Goal, aim: Tensor) -> Tensor:
    """By how much the class aimed at leads the one it must pass: the label, or the best of all others."""
    if isinstance(goal, Targeted):
        return -goal.margin(logits)
    return (logits.gather(1, aim[:, None]) - logits.gather(1, goal.labels[:, None])).squeeze(1)
