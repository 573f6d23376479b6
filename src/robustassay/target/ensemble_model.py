"""Several models that an attacker differentiates as one (Liu et al. 2017, arXiv:1611.02770)."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, final, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadRequest, ModelFailed
from robustassay.target.batching import Batching
from robustassay.target.calls import BatchedCalls, Calls, Loss, SeenAs
from robustassay.target.eot import Draws
from robustassay.target.forward import Forward, FullPrecision
from robustassay.target.nan_watch import NanWatch
from robustassay.target.target_model import TargetModel
from robustassay.threat import Goal

Join = Literal["probabilities", "logits", "losses"]
"""What is averaged over the members: the choice of Liu et al. (2017), that of Dong et al. (2018), or the losses."""


@final
class EnsembleModel(TargetModel):
    """Models whose weighted mean is attacked.

    Its logits are the logarithm of the weighted mean of probabilities, or the weighted mean of logits. Joined losses
    define no logits, so these are the ones of joined probabilities, and only gradients are sums over members.
    """

    def __init__(
        self, members: Sequence[TargetModel], join: Join = "probabilities", weights: Sequence[float] | None = None
    ) -> None:
        if join not in get_args(Join):
            raise BadRequest(f"An ensemble joins {', '.join(get_args(Join))}, not {join}.")
        if not members or len({member.classes for member in members}) > 1:
            raise BadRequest("An ensemble needs at least one member, and all must have the same classes.")
        self.members, self.join, self._given_weights = tuple(members), join, weights
        self.weights = _normalised(weights, len(members))
        classes, device = members[0].classes, members[0].device
        joined = _Joined([member.module for member in members], self.weights, logits=join == "logits").to(device)
        draws, watch = max(member.draws for member in members), NanWatch(ModelFailed)
        is_adaptive = any(member.is_adaptive for member in members)
        forward = FullPrecision(joined, device, joined.call_differentiable if is_adaptive else None)
        sizes = (member.batch_size for member in members if member.batch_size)
        batching = Batching(device, min(sizes, default=None), module=joined)
        calls: Calls = BatchedCalls(forward, classes, device, batching, watch, Draws(draws))
        if join == "losses":
            calls = _JoinedLosses(calls, self.members, self.weights, joined)
        random = any(member.random for member in members)
        super().__init__(joined, calls, classes, device, watch, draws, random)

    @property
    def exact(self) -> "EnsembleModel":
        """This ensemble."""
        return self

    def on(self, device: torch.device) -> "EnsembleModel":
        """Return the same ensemble on a device."""
        return EnsembleModel([member.on(device) for member in self.members], self.join, self._given_weights)

    def with_draws(self, draws: int) -> "EnsembleModel":
        """Return the same ensemble of members that average over this many draws."""
        return EnsembleModel([member.with_draws(draws) for member in self.members], self.join, self._given_weights)

    def with_module(self, module: nn.Module) -> TargetModel:
        """Refuse: no single module stands for all members."""
        raise BadRequest("An ensemble has no single module to replace: examine its members one by one.")

    def with_head(
        self, head: Callable[[nn.Module], nn.Module], classes: int, tried: Tensor | None = None
    ) -> TargetModel:
        """Refuse, as `with_module`."""
        return self.with_module(self.module)


@final
class _JoinedLosses:
    """Gradients as weighted sums over members; all else is that of the joined answer."""

    def __init__(
        self, calls: Calls, members: Sequence[TargetModel], weights: Sequence[float], joined: "_Joined"
    ) -> None:
        self._calls, self._members, self._weights, self._joined = calls, members, weights, joined

    @property
    def forward(self) -> Forward:
        return self._calls.forward

    @property
    def batching(self) -> Batching:
        return self._calls.batching

    def logits(self, x: Tensor) -> Tensor:
        return self._calls.logits(x)

    def gradient(
        self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor, seen_as: SeenAs | None = None
    ) -> tuple[Tensor, Tensor]:
        found = [member.gradient(x, loss, goal, *per_row, seen_as=seen_as) for member in self._members]
        sums = [weight * gradient for weight, (gradient, _) in zip(self._weights, found, strict=True)]
        return torch.stack(sums).sum(0), self._joined.join([logits for _, logits in found])

    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        return self._calls.jacobian(x, classes)


@final
class _Joined(nn.Module):
    """The weighted mean of its members' logits, or the logarithm of the weighted mean of their probabilities."""

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float], logits: bool) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.weights, self.logits = tuple(weights), logits
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the joined logits."""
        return self.join([member(x) for member in self.members])

    def call_differentiable(self, x: Tensor) -> Tensor:
        """Return the same, each member called in the way that it declares for gradients."""
        return self.join([getattr(member, "differentiable", member)(x) for member in self.members])

    def join(self, answers: Sequence[Tensor]) -> Tensor:
        """Join the members' logits."""
        if self.logits:
            return torch.stack([weight * z for weight, z in zip(self.weights, answers, strict=True)]).sum(0)
        parts = [F.log_softmax(z, 1) + math.log(weight) for weight, z in zip(self.weights, answers, strict=True)]
        return torch.stack(parts).logsumexp(0)


def _normalised(weights: Sequence[float] | None, members: int) -> tuple[float, ...]:
    """Return weights that add up to one; equal ones by default."""
    given = tuple(weights or (1.0,) * members)
    if len(given) != members or not all(math.isfinite(weight) and weight > 0 for weight in given):
        raise BadRequest(f"An ensemble of {members} needs {members} weights above zero, not {list(given)}.")
    return tuple(weight / sum(given) for weight in given)
