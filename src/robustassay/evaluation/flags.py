"""Warns, before the attack, of models on which attacks are known to fail unseen.

A flag does not stop a run and changes no record: it stands beside the result and says what not to trust. The
first four are those of AutoAttack (Croce & Hein 2020); nothing is remembered from one model to the next.
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
"""Beyond this margin exp(-margin) is zero in float32, and so is the gradient of most programs' cross-entropy."""

STEP_SIZE: Final = 3e-4
"""A move of each value so small that a smooth model changes as its gradient says: measured, by 3 % at most."""

MAX_LINEAR_ERROR: Final = 0.5
"""Half of the models' answers this far off what their gradients predicted are no curvature."""

_AUTOGRAD: Final[frozenset[CodeType]] = frozenset((torch.autograd.grad.__code__, torch.autograd.backward.__code__))


@final
@dataclass(frozen=True)
class Flag:
    """A reason to doubt a robust accuracy, and what to do about it."""

    name: str
    text: str


def find_flags(network: TargetModel, dataset: Dataset, probabilities: bool) -> tuple[Flag, ...]:
    """Try the model on the first samples and return every warning they give."""
    x = dataset.images(slice(0, SAMPLES)).to(network.device)
    goal = Untargeted(dataset.labels[:SAMPLES].to(network.device))
    gradient, logits = network.gradient(x, logit_margin, goal)
    stuck = int((gradient.flatten(1).abs().amax(1) == 0).sum())
    kept = linearity(network, x, goal, gradient)
    misled = float((kept - 1).abs().median()) if len(kept) else 0.0
    found = {
        "randomised": network.random
        and f"The model draws random numbers: gradients are means over {network.draws} draws, and a success counts "
        "if most of the fresh draws confirm it.",
        "softmax": probabilities
        and "The model returns probabilities, so gradients vanish where it is sure: return logits instead.",
        "squashed": not probabilities
        and bool((logits >= 0).all() & (logits <= 1).all())
        and "All outputs lie between 0 and 1, as after a sigmoid that saturates where the model is sure: return the "
        "values before it.",
        "no-gradients": stuck == len(x)
        and "The gradient is exactly zero on every sample tried, so attacks that follow it stand still: declare how to "
        "differentiate the model, and trust only attacks without gradients until then.",
        "zero-gradients": 0 < stuck < len(x)
        and f"The gradient is exactly zero on {stuck} of {len(x)} samples, where attacks that follow it stand still: "
        "trust attacks without gradients more, or declare how to differentiate the model.",
        "dynamic": _optimises_in_forward(network, x[:1])
        and "The model runs an optimisation of its own in each forward pass, through which attacks may not see.",
        "extreme-logits": float(goal.margin(logits).abs().median()) > UNDERFLOW
        and "The logits are so large that cross-entropy has no gradient in float32: trust attacks on margins or DLR.",
        "misleading-gradients": misled > MAX_LINEAR_ERROR
        and f"A tiny step changes the model's answer by {misled:.0%} more or less than its gradient predicts: "
        "gradients are shattered, so trust attacks without gradients more.",
    }
    return tuple(Flag(name, text) for name, text in found.items() if text)


def linearity(network: TargetModel, x: Tensor, goal: Goal, gradient: Tensor) -> Tensor:
    """Return by how much a tiny step changes each image's margin, as a part of what its gradient predicts.

    Where nothing can be predicted, because draws differ, the gradient is declared to be another's, or is zero, an
    image is left out.
    """
    if network.random or network.is_adaptive:
        return gradient.new_zeros(0)
    step = STEP_SIZE * gradient.sign()
    predicted = 2 * (gradient * step).flatten(1).sum(1)
    seen = goal.margin(network.logits(x - step)) - goal.margin(network.logits(x + step))
    return (seen / predicted)[predicted > 0]


def _optimises_in_forward(network: TargetModel, x: Tensor) -> bool:
    """Say whether one forward pass calls for gradients of its own."""
    called = False

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal called
        called |= event == "call" and frame.f_code in _AUTOGRAD

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(watch)
    try:
        network.logits(x)
    finally:
        sys.setprofile(before)
    return called
