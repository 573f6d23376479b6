"""Training of random self-ensembles (Liu et al. 2018, arXiv:1712.00673)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.models.architectures.rse import drawing_from
from robustassay.registry import register
from robustassay.train.recipe import Recipe


@register("recipe", "rse")
@dataclass(frozen=True, kw_only=True)
class SelfEnsembleTraining(Recipe):
    """Cross-entropy through one draw of the network's own noise layers; the architecture holds the noise."""

    title: ClassVar[str] = "random self-ensemble training"
    note: ClassVar[str] = "Draws noise at test time too: attack it with several draws a gradient."
    compiles: ClassVar[bool] = False  # A compiled network cannot draw from a given generator.

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of one noisy pass."""
        with drawing_from(network, rng):
            return F.cross_entropy(network(x), y)
