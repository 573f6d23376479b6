"""A module behind a defense, as whoever judges or attacks it may look at it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from torch import Tensor, nn

Pass = Callable[[Tensor], Tensor]
"""From images to logits."""


class Defended(nn.Module, ABC):
    """A classifier with three passes: the true one, the one an adaptive attacker differentiates, the naive one.

    Verdicts always come from `forward`; `differentiable` has its values and a gradient worth following; `naive` is
    the model as if it had no defense, what an attacker sees who does not know of it.
    """

    def __init__(self, random: bool) -> None:
        super().__init__()
        self.random = random

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the defended model."""

    @abstractmethod
    def differentiable(self, x: Tensor) -> Tensor:
        """Return logits to differentiate."""

    @abstractmethod
    def naive(self, x: Tensor) -> Tensor:
        """Return the logits of the model without this defense or any further inside."""


@final
class UndefendedGradient(nn.Module):
    """A defended model attacked by someone who does not know of the defense: its verdicts, the model's gradients.

    What it seems to withstand and its adaptive attack breaks is the false security that the defense gives.
    """

    def __init__(self, defended: nn.Module) -> None:
        super().__init__()
        self.defended = defended
        self.random = draws_random_numbers(defended)
        self.train(defended.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the defended model."""
        logits: Tensor = self.defended(x)
        return logits

    def differentiable(self, x: Tensor) -> Tensor:
        """Return the logits of the model without its defense."""
        return naive(self.defended)(x)


@final
class OwnGradient(nn.Module):
    """A defended model attacked through its own gradient, as any module would be: zero where the defense rounds."""

    def __init__(self, defended: nn.Module) -> None:
        super().__init__()
        self.defended = defended
        self.random = draws_random_numbers(defended)
        self.train(defended.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the defended model."""
        logits: Tensor = self.defended(x)
        return logits


def adaptive(model: nn.Module) -> Pass:
    """Return the pass that an attacker who knows the model differentiates."""
    chosen: Pass = getattr(model, "differentiable", model)
    return chosen


def naive(model: nn.Module) -> Pass:
    """Return the pass of a model without its defenses."""
    chosen: Pass = getattr(model, "naive", model)
    return chosen


def draws_random_numbers(model: nn.Module) -> bool:
    """Say whether a model declares that its passes differ; a model that declares nothing is taken at its word."""
    return bool(getattr(model, "random", False))
