"""Reduction of the bit depth."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.defenses.defense import Transform, setting
from robustassay.registry import register


@final
@register("defense", "bit-depth")
@dataclass(frozen=True)
class BitDepth(Transform):
    """Round every value to one of 2^bits levels (Xu et al. 2018, arXiv:1704.01155)."""

    random = False
    shattered = True
    replays = True

    bits: int = setting(3, 1, 8)
    """Bits per value."""

    def __call__(self, x: Tensor) -> Tensor:
        """Round to the nearest level; 0 and 1 stay exact."""
        steps = 2**self.bits - 1
        return x.clamp(0, 1).mul(steps).round().div(steps)
