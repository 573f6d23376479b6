"""Momentum iterative method with diverse inputs."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.transforms import diverse, smoothed
from robustassay.attacks.gradient.mim import ascend_with_momentum
from robustassay.attacks.gradient.tim import check_kernel
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf


@final
@register("attack", "dim")
@dataclass(frozen=True)
class DIM(Attack[GradientAccess]):
    """MIM whose gradients are taken at shrunken, shifted images (Xie et al. 2019, arXiv:1803.06978).

    With a `kernel` above 1 gradients are smoothed as well, which is TI-DIM. Each step also
    queries the image itself, where success is decided.
    """

    info = AttackInfo(
        papers=("1803.06978",),
        formula="as mim, with g taken at T(x): with `probability`, x shrunk to a random size, `low` or more,\n"
        "and padded at random",
        reference="TransferAttack",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 10
    decay: float = 1.0
    path: float = 1.0
    low: float = 0.9
    """Least side of a shrunken image, as a part of the side of the image."""
    probability: float = 0.5
    """Probability that an image is shrunken and shifted."""
    kernel: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel("DIM", self.kernel)
        if not 0 < self.low <= 1 or self.probability > 1:
            raise BadRequest(
                "DIM: low is the smallest part an image is shrunk to, in (0, 1]; probability is at most 1."
            )

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend along the momentum, each step through a new random transform."""
        change = diverse(self.low, self.probability)

        def gradient(x: Tensor) -> Tensor:
            return smoothed(view.with_input_transform(change).gradient(x)[0], self.kernel)

        return ascend_with_momentum(view, x0, self, gradient)
