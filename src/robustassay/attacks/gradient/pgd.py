"""Projected gradient descent."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf


@final
@register("attack", "pgd")
@dataclass(frozen=True)
class PGD(Attack[GradientAccess]):
    """Repeated small steps from a random point of the ball (Madry et al. 2018, arXiv:1706.06083)."""

    info = AttackInfo(
        papers=("1706.06083",),
        formula="x <- P(x + step(g(x), rel_step * eps)), from a random point of the ball; again for each restart",
        reference="adv-lib, torchattacks",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 40
    rel_step: float = 0.1
    restarts: int = 1

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Maximise the loss from a fresh start, each step a fixed part of eps."""
        x = view.ball.sample(view.rng)
        for _ in range(self.steps):
            gradient, _ = view.gradient(x)
            x = view.ball.step(x, gradient, self.rel_step * view.ball.eps)
            (x,) = view.drop_finished(x)
        return x
