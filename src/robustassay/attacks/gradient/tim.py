"""Momentum iterative method with translation-invariant gradients."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.transforms import smoothed
from robustassay.attacks.gradient.mim import ascend_with_momentum
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf


@final
@register("attack", "tim")
@dataclass(frozen=True)
class TIM(Attack[GradientAccess]):
    """MIM on smoothed gradients, close to the mean over shifted images (Dong et al. 2019, arXiv:1904.02884).

    The paper's kernel of 15 pixels is meant for images of 299 pixels. Its edges lie three standard deviations out, so a
    kernel of 3 hardly smooths; 5 is the smallest that does, and suits images of 32 pixels.
    """

    info = AttackInfo(
        papers=("1904.02884",),
        formula="as mim, with g replaced by W * g: the gradient smoothed by a Gaussian window of `kernel` pixels",
        reference="TransferAttack",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 10
    decay: float = 1.0
    path: float = 1.0
    kernel: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel("TIM", self.kernel)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend along the momentum of smoothed gradients."""

        def gradient(x: Tensor) -> Tensor:
            return smoothed(view.gradient(x)[0], self.kernel)

        return ascend_with_momentum(view, x0, self, gradient)


def check_kernel(attack: str, kernel: int) -> None:
    """Refuse kernels of even size."""
    if kernel % 2 == 0:
        raise BadRequest(f"{attack}: kernel must be an odd number of pixels, such as 5, not {kernel}.")
