"""The attacker's goal: any wrong label, or a chosen one.

The rule for ties in the whole package: a model's label is the class with the highest logit,
and among equal logits the one with the lowest index (torch's argmax). The goal is reached by the label.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self, final

import torch.nn.functional as F
from torch import Tensor


def labels_of(logits: Tensor) -> Tensor:
    """Return the label: highest logit, lowest index among equals."""
    return logits.argmax(-1)


@dataclass(frozen=True)
class Goal(ABC):
    """One goal per row, about the class in `labels`; logits are `[rows, classes]` or `[rows, q, classes]`."""

    labels: Tensor

    @abstractmethod
    def met(self, labels: Tensor) -> Tensor:
        """Return which predicted labels reach the goal."""

    @abstractmethod
    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy, signed so that the attacker always increases it."""

    @abstractmethod
    def margin(self, logits: Tensor) -> Tensor:
        """How far the logits are from the goal: positive before it is reached, negative after."""

    @final
    def reached(self, logits: Tensor) -> Tensor:
        """Return which logits reach the goal."""
        return self.met(labels_of(logits))

    @final
    def among(self, rows: Tensor | slice) -> Self:
        """Return the goals of some rows."""
        return type(self)(self.labels[rows])


@final
@dataclass(frozen=True)
class Untargeted(Goal):
    """Any label but the true one, which `labels` holds."""

    def met(self, labels: Tensor) -> Tensor:
        """Any wrong label counts."""
        return labels != self.labels.view(-1, *(1,) * (labels.dim() - 1))

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy of the true label."""
        return cross_entropy(logits, self)

    def margin(self, logits: Tensor) -> Tensor:
        """True logit minus the best other."""
        own, best_other = own_and_best_other(logits, self)
        return own - best_other


@final
@dataclass(frozen=True)
class Targeted(Goal):
    """The one label that `labels` holds, which is not the true one."""

    def met(self, labels: Tensor) -> Tensor:
        """Only the chosen label counts."""
        return labels == self.labels.view(-1, *(1,) * (labels.dim() - 1))

    def loss(self, logits: Tensor) -> Tensor:
        """Minus the cross-entropy of the chosen label."""
        return -cross_entropy(logits, self)

    def margin(self, logits: Tensor) -> Tensor:
        """Best other logit minus the chosen one."""
        own, best_other = own_and_best_other(logits, self)
        return best_other - own


def cross_entropy(logits: Tensor, goal: Goal) -> Tensor:
    """Negative log-probability of each row's label; never averaged, so rows stay independent.

    Written as log(1 + exp(others - own)), whose gradient stays precise however confident the model is; that of
    log-softmax computes p - 1, which float32 rounds to zero beyond a margin of 17.
    """
    own, others = _own_and_others(logits.double(), goal)  # rounded once at the end: the last bit of a float32
    return F.softplus(others.logsumexp(-1) - own).to(logits.dtype)  # exp depends on the size of the batch


def own_and_best_other(logits: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Return the logit of each row's label and the highest of all others."""
    own, others = _own_and_others(logits, goal)
    return own, others.amax(-1)


def _own_and_others(logits: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Return the logit of each row's label, and all logits with -inf in its place."""
    index = goal.labels.view(-1, *(1,) * (logits.dim() - 1)).expand(*logits.shape[:-1], 1)
    return logits.gather(-1, index).squeeze(-1), logits.scatter(-1, index, float("-inf"))
