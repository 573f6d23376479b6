"""The base class of training recipes: optimiser settings and the loss of a batch."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """Stochastic gradient descent with Nesterov momentum and one cycle of the learning rate.

    `rate` is the peak, reached after the share `warmup` of all steps; `average` is the decay per step of the
    moving average of the weights, which is what training returns; a gradient longer than `clip` is shortened to
    it, unless that is 0. Training begins from the weights of the zoo's
    model `start`, where one is named, and from random ones otherwise.
    """

    title: ClassVar[str]
    note: ClassVar[str] = ""
    """A remark on the recipe for the card."""
    compiles: ClassVar[bool] = True
    """Whether the loss works with torch.compile."""

    batch: int = 128
    rate: float = 0.1
    warmup: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    average: float = 0.999
    clip: float = 0.0
    start: str = ""

    @abstractmethod
    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean loss of a batch of images in [0, 1]; `progress` is the fraction of all steps done.

        On a GPU this is recorded once and replayed: it may not look at values, and draws from `rng` alone.
        """

    def rate_at(self, progress: float) -> float:
        """Return the learning rate: a linear rise to the peak, then half a cosine down to zero."""
        if progress < self.warmup:
            return self.rate * progress / self.warmup
        fallen = (progress - self.warmup) / (1 - self.warmup)
        return self.rate * (1 + math.cos(math.pi * fallen)) / 2

    def average_at(self, step: int) -> float:
        """Return the decay of the moving average: small at first, so that the initial weights are forgotten."""
        return min(self.average, (1 + step) / (10 + step))


@runtime_checkable
class HasMeasurements(Protocol):
    """A recipe with additional measurements for the card."""

    def measurements(self, network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Return additional measurements of a trained network on uint8 images."""
        ...
