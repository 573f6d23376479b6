"""Flags: warnings, before the attack, about models on which attacks are known to fail without notice.

A flag is reported beside the result and changes no record. Two flags stop a run unless `--despite-flags` is given:
`softmax`, and `no-gradients` for attacks that need gradients (see checks.py). These flags correspond to checks of
AutoAttack (Croce & Hein 2020): `randomised`, `softmax`, `no-gradients`, `zero-gradients` and `dynamic`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final, final

import torch
from torch import Tensor

from robustassay.data import Dataset
from robustassay.target import TargetModel
from robustassay.threat import Goal, Untargeted
from robustassay.threat.losses import logit_margin

SAMPLES: Final = 32

UNDERFLOW: Final = 88.0
"""Above this margin exp(-margin) is zero in float32, and so is the gradient of the usual cross-entropy."""

STEP_SIZE: Final = 3e-4
"""Size of a step, per value, over which smooth models are linear: measured error 3 % at most."""

MAX_LINEAR_ERROR: Final = 0.5
"""Limit of the median relative error of the linear prediction.

A larger median error cannot come from curvature, so the gradient is wrong.
"""

_AUTOGRAD: Final[frozenset[CodeType]] = frozenset((torch.autograd.grad.__code__, torch.autograd.backward.__code__))


@final
@dataclass(frozen=True)
class Flag:
    """A reason why a robust accuracy may be too high, and what to do about it."""

    name: str
    text: str


def find_flags(target: TargetModel, dataset: Dataset, probabilities: bool) -> tuple[Flag, ...]:
    """Test the model on the first samples and return every flag."""
    x = dataset.images(slice(0, SAMPLES)).to(target.device)
    goal = Untargeted(dataset.labels[:SAMPLES].to(target.device))
    gradient, logits = target.gradient(x, logit_margin, goal)
    zero_count = int((gradient.flatten(1).abs().amax(1) == 0).sum())
    ratios = linearity(target, x, goal, gradient)
    error = float((ratios - 1).abs().median()) if len(ratios) else 0.0
    found = {
        "randomised": target.random
        and f"The model draws random numbers: gradients are means over {target.draws} draws, and a success counts "
        "if most of 64 fresh draws confirm it.",
        "softmax": probabilities
        and "The model returns probabilities, so gradients vanish where it is confident: return logits instead.",
        "squashed": not probabilities
        and bool((logits >= 0).all() & (logits <= 1).all())
        and "All outputs lie between 0 and 1, as after a sigmoid, which saturates where the model is confident: "
        "return the values before it.",
        "no-gradients": zero_count == len(x)
        and "The gradient is exactly zero on every sample tried, so gradient attacks do not move: declare how to "
        "differentiate the model, and until then trust only attacks without gradients.",
        "zero-gradients": 0 < zero_count < len(x)
        and f"The gradient is exactly zero on {zero_count} of {len(x)} samples, where gradient attacks do not move: "
        "trust attacks without gradients more, or declare how to differentiate the model.",
        "dynamic": _optimises_in_forward(target, x[:1])
        and "The model runs an optimisation in each forward pass, and gradients may not pass through it.",
        "extreme-logits": float(goal.margin(logits).abs().median()) > UNDERFLOW
        and "The logits are so large that cross-entropy has no gradient in float32: trust attacks on margins or DLR.",
        "misleading-gradients": error > MAX_LINEAR_ERROR
        and f"The change of the margin over a tiny step differs by {error:.0%} from what the gradient predicts: "
        "gradients are shattered, so trust attacks without gradients more.",
    }
    return tuple(Flag(name, text) for name, text in found.items() if text)


def linearity(target: TargetModel, x: Tensor, goal: Goal, gradient: Tensor) -> Tensor:
    """Return the change of each margin over a tiny step, divided by the change that the gradient predicts.

    Images are left out where no prediction is possible: the model is random, its gradient is declared, or it is zero.
    """
    if target.random or target.is_adaptive:
        return gradient.new_zeros(0)
    step = STEP_SIZE * gradient.sign()
    predicted = 2 * (gradient * step).flatten(1).sum(1)
    seen = goal.margin(target.logits(x - step)) - goal.margin(target.logits(x + step))
    return (seen / predicted)[predicted > 0]


def _optimises_in_forward(target: TargetModel, x: Tensor) -> bool:
    """Whether one forward pass computes gradients."""
    called = False

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal called
        called |= event == "call" and frame.f_code in _AUTOGRAD

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(watch)
    try:
        target.logits(x)
    finally:
        sys.setprofile(before)
    return called
