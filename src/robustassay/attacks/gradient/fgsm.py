"""Fast gradient sign method."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import LInf


@final
@register("attack", "fgsm")
@dataclass(frozen=True)
class FGSM(Attack[GradientAccess]):
    """One full step along the sign of the gradient (Goodfellow et al. 2015, arXiv:1412.6572)."""

    info = AttackInfo(
        papers=("1412.6572",),
        formula="x = P(x0 + eps * sign(g(x0)))",
        reference="foolbox, torchattacks, ART",
    )
    access = GradientAccess
    norms = (LInf,)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Take the step."""
        gradient, _ = view.gradient(x0)
        (x,) = view.drop_finished(view.ball.step(x0, gradient, view.ball.eps))
        return x
