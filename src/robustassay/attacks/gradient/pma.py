"""Probability margin attack."""

import math
from dataclasses import dataclass
from typing import Final, final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess, Loss
from robustassay.threat import L1, L2, LInf
from robustassay.threat.losses import probability_margin

STEP_WEIGHT: Final = 0.75
"""Weight of the gradient step (alpha of Auto-PGD); the last move has weight 1 - alpha."""


@final
@register("attack", "pma")
@dataclass(frozen=True)
class PMA(Attack[GradientAccess]):
    """Long steps, shortened along a cosine, on the margin between probabilities (Ma et al. 2024, arXiv:2411.15210)."""

    info = AttackInfo(
        papers=("2411.15210",),
        formula="a_k = eps * (1 + cos(pi * k / steps))\n"
        "ahead = P(x + step(g(x), a_k)), with g of max over j != y of p_j - p_y\n"
        "x <- P(x + 0.75 * (ahead - x) + 0.25 * (x - x_before))",
        reference="the authors' code",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 100
    restarts: int = 1

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend from a random point of the ball."""
        return ascend_along_cosine(view, view.ball.sample(view.rng), self.steps, probability_margin)


def ascend_along_cosine(view: GradientAccess, x: Tensor, steps: int, loss: Loss, *loss_arguments: Tensor) -> Tensor:
    """Ascend with momentum; steps start at twice the radius and decrease to zero along half a cosine."""
    x_old, per_row = x, list(loss_arguments)
    for k in range(steps):
        gradient, _ = view.gradient(x, loss, *per_row)
        ahead = view.ball.step(x, gradient, (1 + math.cos(math.pi * k / steps)) * view.ball.eps)
        alpha = STEP_WEIGHT if k else 1.0
        x_old, x = x, view.ball.project(x + alpha * (ahead - x) + (1 - alpha) * (x - x_old))
        x, x_old, *per_row = view.drop_finished(x, x_old, *per_row)
    return x
