"""Training under Gaussian noise, the base of randomised smoothing (Cohen et al. 2019, arXiv:1902.02918)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.registry import register
from robustassay.train.measure import clean_accuracy
from robustassay.train.recipe import Recipe


@register("recipe", "gaussian")
@dataclass(frozen=True, kw_only=True)
class GaussianNoiseTraining(Recipe):
    """Cross-entropy on images under normal noise of deviation `sigma`, which may leave [0, 1] as in smoothing."""

    title: ClassVar[str] = "training under Gaussian noise"

    sigma: float = 0.25

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of the noisy batch."""
        noise = torch.empty_like(x).normal_(generator=rng)
        return F.cross_entropy(network(x + self.sigma * noise), y)

    def measurements(self, network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Return the accuracy under one draw of the noise, the base accuracy of smoothing."""
        return {"noisy_accuracy": clean_accuracy(Noisy(network, self.sigma), x, y), "noise": self.sigma}


class Noisy(nn.Module):
    """A network with noise on its input."""

    def __init__(self, network: nn.Module, sigma: float) -> None:
        super().__init__()
        self.network = network
        self.sigma = sigma

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the noisy images."""
        logits: Tensor = self.network(x + self.sigma * torch.randn_like(x))
        return logits
