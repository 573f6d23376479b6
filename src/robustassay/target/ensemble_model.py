"""Several networks that an attacker differentiates as one (Liu et al. 2017, arXiv:1611.02770)."""

import math
from collections.abc import Sequence
from typing import Literal, final, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.target.local_model import LocalModel, Loss, SeenAs, TargetModel
from robustassay.threat import Goal

Join = Literal["probabilities", "logits", "losses"]
"""What of the members is averaged: the paper's choice, Dong et al.'s (2018), or what each alone is attacked by."""


@final
class EnsembleModel(LocalModel):
    """Networks whose weighted mean is attacked.

    Its answer is the weighted mean of probabilities, or of logits where these are joined. Joined losses have no
    answer of their own, so there the answer is that of the probabilities, and only gradients are sums over members.
    """

    def __init__(
        self, members: Sequence[TargetModel], join: Join = "probabilities", weights: Sequence[float] | None = None
    ) -> None:
        if join not in get_args(Join):
            raise BadRequest(f"An ensemble joins {', '.join(get_args(Join))}, not {join}.")
        if not members or len({member.classes for member in members}) > 1:
            raise BadRequest("An ensemble has at least one member, and all know the same classes.")
        self.members, self.join, self.weights = tuple(members), join, _shares(weights, len(members))
        joined = _Joined([member.module for member in members], self.weights, logits=join == "logits")
        super().__init__(
            joined,
            members[0].classes,
            members[0].device,
            min((member.batch_size for member in members if member.batch_size), default=None),
            max(member.draws for member in members),
            any(member.random for member in members),
        )
        self._joined = joined
        self._differentiable = joined.adaptively if any(member.is_adaptive for member in members) else None

    def gradient(
        self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor, seen_as: SeenAs | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of the joint loss, and the joint logits."""
        if self.join != "losses":
            return super().gradient(x, loss, goal, *per_row, seen_as=seen_as)
        found = [member.gradient(x, loss, goal, *per_row, seen_as=seen_as) for member in self.members]
        joint = torch.stack([share * slope for share, (slope, _) in zip(self.weights, found, strict=True)]).sum(0)
        return joint, self._joined.join([logits for _, logits in found])


@final
class _Joined(nn.Module):
    """The weighted mean of its members' logits, or the logarithm of the weighted mean of their probabilities."""

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float], logits: bool) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.weights, self.logits = tuple(weights), logits
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the whole."""
        return self.join([member(x) for member in self.members])

    def adaptively(self, x: Tensor) -> Tensor:
        """Return the same, each member as an attacker who knows it differentiates it."""
        return self.join([getattr(member, "differentiable", member)(x) for member in self.members])

    def join(self, answers: Sequence[Tensor]) -> Tensor:
        """Make one answer of the members'."""
        if self.logits:
            return torch.stack([share * z for share, z in zip(self.weights, answers, strict=True)]).sum(0)
        parts = [F.log_softmax(z, 1) + math.log(share) for share, z in zip(self.weights, answers, strict=True)]
        return torch.stack(parts).logsumexp(0)


def _shares(weights: Sequence[float] | None, members: int) -> tuple[float, ...]:
    """Return weights that add up to one; equal ones by default."""
    given = tuple(weights or (1.0,) * members)
    if len(given) != members or not all(math.isfinite(weight) and weight > 0 for weight in given):
        raise BadRequest(f"An ensemble of {members} needs {members} weights above zero, not {list(given)}.")
    return tuple(weight / sum(given) for weight in given)
