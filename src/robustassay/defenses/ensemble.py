"""Ensembles of models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.defenses.defended import Defended, Pass, adaptive, draws_random_numbers, naive
from robustassay.defenses.defense import Defense, as_module, setting
from robustassay.errors import BadRequest
from robustassay.registry import register

AVERAGES: Final = ("probabilities", "logits")


@final
@register("defense", "ensemble")
@dataclass(frozen=True)
class EnsembleWith(Defense):
    """Average the model with others, named in `members` with + between them."""

    random = False

    members: str = setting("")
    """Further models, joined by +."""
    average: str = setting("probabilities", among=AVERAGES)
    """What is averaged: probabilities or logits."""

    def defend(self, model: nn.Module) -> "Ensemble":
        """Load the other members and return the ensemble."""
        names = [name.strip() for name in self.members.split("+") if name.strip()]
        if not names:
            raise BadRequest("Ensemble: name the other members, as in ensemble:members=resnet56-natural+resnet20-pgd.")
        return Ensemble([model, *(as_module(name) for name in names)], self.average)


@final
class Ensemble(Defended):
    """The mean of the members' logits, or the logarithm of the mean of their probabilities."""

    def __init__(self, members: Sequence[nn.Module], average: str = "probabilities") -> None:
        super().__init__(any(draws_random_numbers(member) for member in members))
        if not members or average not in AVERAGES:
            raise BadRequest(f"An ensemble needs at least one member, and averages {' or '.join(AVERAGES)}.")
        self.members = nn.ModuleList(members)
        self.average = average
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the ensemble."""
        return self._joined(list(self.members), x)

    def differentiable(self, x: Tensor) -> Tensor:
        """Return the same with the adaptive pass of each member."""
        return self._joined([adaptive(member) for member in self.members], x)

    def naive(self, x: Tensor) -> Tensor:
        """Return the logits of the first member alone."""
        return naive(self.members[0])(x)

    def extra_repr(self) -> str:
        """Return what is averaged."""
        return f"average={self.average}"

    def _joined(self, passes: Sequence[Pass], x: Tensor) -> Tensor:
        logits = torch.stack([each(x) for each in passes])
        return logits.mean(0) if self.average == "logits" else mean_probability(logits)


def mean_probability(logits: Tensor) -> Tensor:
    """Average the probabilities of `[k, n, classes]` logits, and return the logarithm of the mean."""
    return F.log_softmax(logits, 2).logsumexp(0) - math.log(len(logits))
