"""Standard training."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.registry import register
from robustassay.train.recipe import Recipe


@register("recipe", "natural")
@dataclass(frozen=True, kw_only=True)
class Natural(Recipe):
    """Cross-entropy on clean images."""

    title: ClassVar[str] = "natural training"

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of the batch."""
        return F.cross_entropy(network(x), y)
