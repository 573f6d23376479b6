"""Basic iterative method."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf


@final
@register("attack", "bim")
@dataclass(frozen=True)
class BIM(Attack[GradientAccess]):
    """Repeated small steps from the clean image (Kurakin et al. 2017, arXiv:1607.02533)."""

    info = AttackInfo(
        papers=("1607.02533",),
        formula="x <- P(x + step(g(x), rel_step * eps)), from x0",
        reference="torchattacks",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 10
    rel_step: float = 0.2

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Maximise the loss, each step a fixed part of eps."""
        x = x0
        for _ in range(self.steps):
            gradient, _ = view.gradient(x)
            x = view.ball.step(x, gradient, self.rel_step * view.ball.eps)
            (x,) = view.drop_finished(x)
        return x
