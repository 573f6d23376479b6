"""Fast minimum-norm attack."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L0, L1, L2, Ball, LInf
from robustassay.threat.losses import logit_margin


@final
@register("attack", "fmn")
@dataclass(frozen=True)
class FMN(Attack[GradientAccess]):
    """Steps inside a ball that shrinks on success and grows on failure (Pintor et al. 2021, arXiv:2102.12827).

    The step falls along a cosine from `alpha_init` to a hundredth of it, the rate at which the radius changes from
    `gamma_init` to `gamma_final`. Projections are exact, onto ball and box together; the paper clips afterwards.
    """

    info = AttackInfo(
        papers=("2102.12827",),
        formula="x <- P_r(x + a_k * g / |g|_2), with g of -m and P_r onto the ball of the row's own radius r\n"
        "r shrinks by gamma_k where the goal is reached, else grows; before the first success,\n"
        "r = |x - x0| + |m| / |g|_dual",
        reference="adv-lib, foolbox",
    )
    access = GradientAccess
    norms = (LInf, L2, L1, L0)
    seeks_minimum = True

    steps: int = 100
    alpha_init: float = 1.0
    """First length of a step; it falls to a hundredth of this."""
    gamma_init: float = 0.05
    """First part by which the radius changes at a step."""
    gamma_final: float = 0.001
    """Last part by which the radius changes at a step."""

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Follow the gradient of the margin while each row's radius approaches its distance."""
        norm = view.ball.norm
        farthest = view.track(norm.size(torch.maximum(x0, 1 - x0).flatten(1)))
        x, eps = x0, torch.ones_like(farthest())
        best = torch.full_like(eps, torch.inf)
        for alpha, gamma in self._schedule():
            gradient, logits = view.gradient(x, logit_margin)
            reached, size = view.goal.reached(logits), view.ball.distance(x)
            best = torch.where(reached, torch.minimum(best, size), best)
            if isinstance(norm, L0):
                eps = _count(eps, gamma, reached, best)
            else:
                to_boundary = view.goal.margin(logits).abs() / norm.dual.size(gradient.flatten(1))
                eps = _radius(eps, gamma, reached, best, size, to_boundary)
            eps = torch.minimum(eps, farthest())
            x = Ball(norm, view.ball.centre, eps.float()).project(x + alpha * _unit(gradient))
            x, eps, best = view.drop_finished(x, eps, best)
        return x

    def _schedule(self) -> Iterator[tuple[float, float]]:
        for k in range(self.steps):
            cosine = (1 + math.cos(math.pi * k / self.steps)) / 2
            gamma = self.gamma_final + (self.gamma_init - self.gamma_final) * cosine
            yield self.alpha_init * (0.01 + 0.99 * cosine), gamma


def _radius(eps: Tensor, gamma: float, reached: Tensor, best: Tensor, size: Tensor, to_boundary: Tensor) -> Tensor:
    """Shrink or grow by gamma; before the first success, use the distance to the boundary of a linear model.

    Grow by gamma at least: where the loss is concave, or at a tie, that estimate alone never crosses the boundary.
    """
    guess = torch.maximum(size + to_boundary.nan_to_num(), size * (1 + gamma))
    grown = torch.where(best < torch.inf, eps * (1 + gamma), guess)
    return torch.where(reached, torch.minimum(eps * (1 - gamma), best), grown)


def _count(eps: Tensor, gamma: float, reached: Tensor, best: Tensor) -> Tensor:
    """Shrink or grow by gamma and by at least one value."""
    fewer = torch.minimum(torch.minimum(eps - 1, (eps * (1 - gamma)).floor()), best)
    more = torch.maximum(eps + 1, (eps * (1 + gamma)).floor())
    return torch.where(reached, fewer, more).clamp(min=1)


def _unit(gradient: Tensor) -> Tensor:
    """Scale to Euclidean length one; L2 steps ignore their bounds."""
    flat = gradient.flatten(1)
    return L2(1).steepest(flat, flat, flat, flat.new_ones(len(flat))).view_as(gradient)
