"""Median smoothing."""

from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor

from robustassay.defenses.defense import Transform, setting
from robustassay.registry import register


@final
@register("defense", "median")
@dataclass(frozen=True)
class Median(Transform):
    """Replace every value by the median of the square of `radius` pixels around it (Xu et al. 2018, arXiv:1704.01155).

    It has a gradient of its own: that of the value which is the median.
    """

    random = False

    radius: int = setting(1, 1, 7)
    """Pixels on each side of the one that is replaced."""

    def __call__(self, x: Tensor) -> Tensor:
        """Smooth each channel; the image is mirrored at its edges."""
        return median_filter(x, self.radius)


def median_filter(x: Tensor, radius: int) -> Tensor:
    """Return the median of the neighbourhood of each value, per channel."""
    size = 2 * radius + 1
    padded = F.pad(x, 4 * (radius,), mode="reflect")
    windows = padded.unfold(2, size, 1).unfold(3, size, 1).flatten(-2)
    return windows.median(-1).values
