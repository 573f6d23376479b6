"""Compares gradients with central differences along random directions.

A gradient that is wrong in some pixels, channels or logits is wrong along almost every random direction. Along its own
sign it may look right, because the values that it leaves out then never move.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.evaluation.repeatability import differs
from robustassay.rng import Streams, seeded
from robustassay.target import TargetModel
from robustassay.target.comparison import near_top
from robustassay.threat import Goal
from robustassay.threat.losses import logit_margin

SEED: Final = 0

DIRECTIONS: Final = 8

NUDGE: Final = 1e-4
"""Change of each value over which smooth models in float32 are linear."""

GROWTH: Final = 4.0
MAX_NUDGE: Final = 0.02
"""Where a change is not clear of rounding errors, it is tried again with a nudge that many times larger, up to this."""

RESOLUTION: Final = 2.0
"""Smallest nudge, in units of the resolution of the model's floating type near one."""

CLEAR: Final = 10.0
"""A change is clear if it is this many times the rounding error of a margin."""

ROUNDINGS: Final = 8.0
"""The rounding error of a margin, in units of the resolution of its largest logit."""

VALUES_AT_ONCE: Final = 1 << 24
"""Values of nudged images that are held at once."""


@final
@dataclass(frozen=True)
class DirectionalErrors:
    """The relative error of each image's gradient; NaN where neither gradient nor model shows a clear change.

    `reason` says why no image was examined; it is empty otherwise.
    """

    error: Tensor
    slope: Tensor  # change of the margin divided by the predicted one; NaN where there is no error
    zero: Tensor  # whether the gradient of the margin is exactly zero
    reason: str = ""

    @property
    def examined(self) -> Tensor:
        """Images with an error."""
        return self.error.isfinite()


def directional_errors(
    target: TargetModel,
    ids: Sequence[str],
    x: Tensor,
    goal: Goal,
    directions: int = DIRECTIONS,
    all_logits: bool = True,
) -> DirectionalErrors:
    """Compare the gradient of the margin, and of a random sum of all logits, with central differences.

    Each pass of a random model draws the same numbers.
    """
    once = target.with_draws(1) if target.random else target
    zero = _gradient(once, x, goal, None).flatten(1).abs().amax(1) == 0
    nothing = torch.full((len(x),), torch.nan, dtype=torch.float64, device=x.device)
    if target.is_adaptive:
        return DirectionalErrors(nothing, nothing, zero, "the model declares its gradient")
    if target.random and differs(_logits(once, x), _logits(once, x)):
        return DirectionalErrors(nothing, nothing, zero, "the model draws random numbers that cannot be repeated")
    error, slope, rng = nothing, nothing.clone(), Streams.of(SEED, ids, x.device)
    nudge = max(NUDGE, RESOLUTION * torch.finfo(target.dtype).eps)
    while (error.isnan()).any() and nudge <= MAX_NUDGE:
        rows = error.isnan().nonzero().squeeze(1)
        error[rows], slope[rows] = _errors_at(
            once, rng.among(rows), x[rows], goal.among(rows), nudge, directions, all_logits
        )
        nudge *= GROWTH
    once.check()
    reason = "" if error.isfinite().any() else "no change is clear of the model's rounding errors"
    return DirectionalErrors(error, slope, zero, reason)


def _errors_at(
    target: TargetModel, rng: Streams, x: Tensor, goal: Goal, nudge: float, directions: int, all_logits: bool
) -> tuple[Tensor, Tensor]:
    """Return the error and the slope of each image over one size of nudge; NaN where no change is clear."""
    centre = x.clamp(nudge, 1 - nudge)
    weights = [None, *([rng.rademacher(target.classes)] if all_logits else [])]
    gradients = [_gradient(target, centre, goal, weight).double() for weight in weights]
    logits = _logits(target, centre)
    rounding = ROUNDINGS * torch.finfo(target.dtype).eps * (logits.abs() * near_top(logits)).amax(1).double()
    seen: list[list[Tensor]] = [[] for _ in weights]
    predicted: list[list[Tensor]] = [[] for _ in weights]
    for portion in _portions(directions, x):
        steps = [nudge * rng.rademacher(*x.shape[1:]) for _ in range(portion)]
        pairs = [[(centre + sign * step).to(target.dtype).float() for sign in (1, -1)] for step in steps]
        ends = _logits_of_each(target, [end for pair in pairs for end in pair])
        for (above, below), upper, lower in zip(pairs, ends[::2], ends[1::2], strict=True):
            for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
                seen[number].append(_change(upper, lower, goal, weight))
                predicted[number].append((gradient * (above - below).double()).flatten(1).sum(1))
    changes = [(torch.stack(s), torch.stack(p)) for s, p in zip(seen, predicted, strict=True)]
    noises = (rounding, rounding * target.classes**0.5)
    errors = torch.stack([_relative_error(*pair, noise) for pair, noise in zip(changes, noises, strict=False)])
    error = errors.nan_to_num(-1.0).amax(0).where(~errors.isnan().all(0), torch.nan)
    own_seen, own_predicted = changes[0]
    slope = (own_seen * own_predicted).sum(0) / own_predicted.square().sum(0).clamp(min=1e-300)
    return error, slope.where(errors[0].isfinite(), torch.nan)


def _relative_error(seen: Tensor, predicted: Tensor, rounding: Tensor) -> Tensor:
    """Return the median difference over the directions relative to the median change; NaN where that is not clear."""
    overflown = ~predicted.isfinite().all(0)
    size = torch.maximum(seen.abs(), predicted.abs()).nan_to_num().median(0).values
    error = (seen - predicted).abs().median(0).values / size.clamp(min=1e-300)
    return error.where(size > CLEAR * rounding, torch.nan).where(~overflown, 1.0)


def _change(upper: Tensor, lower: Tensor, goal: Goal, weight: Tensor | None) -> Tensor:
    """Return the change of the loss that `_gradient` differentiates, in float64."""
    if weight is None:
        return goal.margin(lower).double() - goal.margin(upper).double()
    return ((upper.double() - lower.double()) * weight).sum(1)


def _gradient(target: TargetModel, x: Tensor, goal: Goal, weight: Tensor | None) -> Tensor:
    with seeded("directions", x.device):
        if weight is None:
            return target.gradient(x, logit_margin, goal)[0]
        return target.gradient(x, _weighted_sum, goal, weight)[0]


def _logits(target: TargetModel, x: Tensor) -> Tensor:
    with seeded("directions", x.device):
        return target.logits(x)


def _logits_of_each(target: TargetModel, batches: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the logits of each batch: by one call, unless each pass must draw the same numbers."""
    if target.random:
        return [_logits(target, x) for x in batches]
    return torch.split(_logits(target, torch.cat(tuple(batches))), len(batches[0]))


def _portions(directions: int, x: Tensor) -> list[int]:
    """Cut a number of directions into portions whose images fit into memory together."""
    portion = max(1, VALUES_AT_ONCE // (2 * x.numel()))
    return [min(portion, directions - start) for start in range(0, directions, portion)]


def _weighted_sum(logits: Tensor, goal: Goal, weight: Tensor) -> Tensor:
    return (logits * weight).sum(-1)
