"""A module behind a defense: what it predicts, and which gradients an attack gets."""

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
        """Return the logits that an adaptive attacker differentiates."""

    @abstractmethod
    def naive(self, x: Tensor) -> Tensor:
        """Return the logits of the model without this defense and those inside it."""


@final
class UndefendedGradient(nn.Module):
    """A defended model for a non-adaptive attack: logits with the defense, gradients without it.

    Images that this attack does not break but an adaptive one does are overestimated robustness.
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
    """A defended model for attacks with its own gradient, without BPDA: zero if the defense rounds."""

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
    """Return the function that an adaptive attacker differentiates."""
    chosen: Pass = getattr(model, "differentiable", model)
    return chosen


def naive(model: nn.Module) -> Pass:
    """Return the forward function of a model without its defenses."""
    chosen: Pass = getattr(model, "naive", model)
    return chosen


def draws_random_numbers(model: nn.Module) -> bool:
    """Return whether a model declares that it is random; without a declaration it is taken as deterministic."""
    return bool(getattr(model, "random", False))
