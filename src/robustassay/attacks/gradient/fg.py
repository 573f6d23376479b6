"""Fast gradient method for norms other than L∞."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2


@final
@register("attack", "fg")
@dataclass(frozen=True)
class FG(Attack[GradientAccess]):
    """One full step along the gradient (Liu et al. 2017, arXiv:1611.02770).

    Under L1 the step changes only the values of the largest gradient.
    """

    info = AttackInfo(
        papers=("1611.02770",),
        formula="x = P(x0 + step(g(x0), eps))",
        reference="foolbox",
    )
    access = GradientAccess
    norms = (L2, L1)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Take the step."""
        gradient, _ = view.gradient(x0)
        (x,) = view.drop_finished(view.ball.step(x0, gradient, view.ball.eps))
        return x
