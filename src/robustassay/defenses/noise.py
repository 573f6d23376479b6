"""Gaussian noise on the image, averaged over passes."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.defenses.defense import Transform, setting
from robustassay.registry import register


@final
@register("defense", "noise")
@dataclass(frozen=True)
class Noise(Transform):
    """The outer part of random self-ensemble (Liu et al. 2018, arXiv:1712.00673): noisy copies, averaged logits.

    The noise layers inside RSE belong to its network; a model trained without noise needs a small sigma.
    """

    random = True

    sigma: float = setting(0.05)
    """Standard deviation of the noise."""
    copies: int = setting(10, 1)
    """Noisy copies whose logits are averaged."""

    def __call__(self, x: Tensor) -> Tensor:
        """Add fresh noise to every value."""
        return x + self.sigma * torch.randn_like(x)
