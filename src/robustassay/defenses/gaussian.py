"""Gaussian smoothing."""

import math
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.defenses.defense import Transform, setting
from robustassay.registry import register


@final
@register("defense", "gaussian")
@dataclass(frozen=True)
class Gaussian(Transform):
    """Blur the image with a Gaussian of `sigma` pixels, truncated at three sigma."""

    random = False

    sigma: float = setting(0.7, 0.1, 5)
    """Standard deviation of the blur in pixels."""

    def __call__(self, x: Tensor) -> Tensor:
        """Blur along rows, then along columns; the image is mirrored at its edges."""
        reach, channels = math.ceil(3 * self.sigma), x.shape[1]
        offsets = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
        bell = torch.softmax(-0.5 * (offsets / self.sigma) ** 2, 0).expand(channels, 1, 1, -1)
        x = F.conv2d(F.pad(x, (reach, reach, 0, 0), mode="reflect"), bell, groups=channels)
        return F.conv2d(F.pad(x, (0, 0, reach, reach), mode="reflect"), bell.mT, groups=channels)
