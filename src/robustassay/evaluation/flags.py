"""Flags: warnings, before the attack, about models on which attacks are known to fail without notice.

A flag is reported beside the result and changes no record. Two flags stop a run unless `--despite-flags` is given:
`softmax`, and `no-gradients` for attacks that need gradients (see checks.py). These flags correspond to checks of
AutoAttack (Croce & Hein 2020): `randomised`, `softmax`, `no-gradients`, `zero-gradients` and `dynamic`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final, final

import torch
from torch import Tensor

from robustassay.data import Dataset
from robustassay.evaluation.constant_outputs import is_constant
from robustassay.evaluation.finite_differences import DirectionalErrors, directional_errors
from robustassay.evaluation.unreachable_class import find_unreachable_class
from robustassay.target import TargetModel
from robustassay.threat import Goal, Untargeted

SAMPLES: Final = 32

RANDOMISED: Final = "randomised"
NO_GRADIENTS: Final = "no-gradients"
UNREACHABLE: Final = "unreachable-class"

SATURATED: Final = 0.95
"""Median of the highest outputs above which outputs between 0 and 1 are squashed ones, and not small logits."""

UNDERFLOW: Final = 88.0
"""Above this margin exp(-margin) is zero in float32, and so is the gradient of the usual cross-entropy."""

DIRECTIONS: Final = 3
"""Random directions per image along which the gradient is compared with the model."""

MORE_DIRECTIONS: Final = 8
"""The same for images at which it seems wrong: along few directions, a kink of an honest network can do that."""

MAX_DIRECTIONAL_ERROR: Final = 0.35
"""Relative error of a gradient along random directions; a larger one cannot come from curvature."""

MAX_WRONG: Final = 0.1
"""Fraction of images on which the gradient may be wrong, or zero although the model changes."""

MAX_FLAT: Final = 0.25
"""Fraction of images on which the gradient may be zero in a region where the model is constant, as far as tried.

Such samples are in doubt by themselves, because no attack moves their margin; the others need not be.
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
    logits = target.mean_logits(x)
    found_errors = directional_errors(target, dataset.ids[: len(x)], x, goal, DIRECTIONS, all_logits=False)
    zero_count, zero_matters = int(found_errors.zero.sum()), matters(found_errors)
    wrong = _count_wrong(target, dataset.ids[: len(x)], x, goal, found_errors)
    unreachable = find_unreachable_class(target, x, logits)
    found = {
        RANDOMISED: target.random
        and f"The model draws random numbers: gradients are means over {target.draws} draws, and a success counts "
        "if most of 64 fresh draws confirm it.",
        "softmax": probabilities
        and "The model returns probabilities, so gradients vanish where it is confident: return logits instead.",
        "squashed": not probabilities
        and bool((logits >= 0).all() & (logits <= 1).all())
        and float(logits.amax(1).median()) > SATURATED
        and "All outputs lie between 0 and 1, as after a sigmoid, which saturates where the model is confident: "
        "return the values before it.",
        NO_GRADIENTS: zero_count == len(x)
        and not is_constant(target, x)
        and "The gradient is exactly zero on every sample tried, so gradient attacks do not move: declare how to "
        "differentiate the model, and until then trust only attacks without gradients.",
        "zero-gradients": 0 < zero_count < len(x)
        and zero_matters
        and f"The gradient is exactly zero on {zero_count} of {len(x)} samples, where gradient attacks do not move: "
        "trust attacks without gradients more, or declare how to differentiate the model.",
        "dynamic": _optimises_in_forward(target, x[:1])
        and "The model runs an optimisation in each forward pass, and gradients may not pass through it.",
        "extreme-logits": float(goal.margin(logits).abs().median()) > UNDERFLOW
        and "The logits are so large that cross-entropy has no gradient in float32: trust attacks on margins or DLR.",
        "misleading-gradients": wrong > MAX_WRONG * len(x)
        and f"Over tiny steps the margin of {wrong} of {len(x)} samples changes otherwise than gradients "
        "predict: they are wrong or shattered, so trust attacks without gradients more.",
        UNREACHABLE: unreachable is not None
        and f"Class {unreachable} comes second on most samples and wins on none, however far one goes towards it: "
        "attacks on the smallest margin aim at it in vain, so trust targeted attacks (apgd-t) more.",
    }
    return tuple(Flag(name, text) for name, text in found.items() if text)


def _count_wrong(target: TargetModel, ids: Sequence[str], x: Tensor, goal: Goal, errors: DirectionalErrors) -> int:
    """Count the images with a wrong gradient; those at which it seems wrong are compared along more directions."""
    rows = (~errors.zero & (errors.error > MAX_DIRECTIONAL_ERROR)).nonzero().squeeze(1)
    if not len(rows):
        return 0
    chosen = [ids[row] for row in rows.tolist()]
    again = directional_errors(target, chosen, x[rows], goal.among(rows), MORE_DIRECTIONS, all_logits=False)
    return int((again.error > MAX_DIRECTIONAL_ERROR).sum())


def matters(errors: DirectionalErrors) -> bool:
    """Say whether gradients of zero mislead: the model changes there, or they are too many to be dead regions."""
    zero = errors.zero
    moving = (zero & errors.examined).float().mean()
    return bool(moving > MAX_WRONG or zero.float().mean() > MAX_FLAT)


def _optimises_in_forward(target: TargetModel, x: Tensor) -> bool:
    """Whether one forward pass computes gradients."""
    called = False

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal called
        called |= event == "call" and frame.f_code in _AUTOGRAD

    with _profile(watch):
        target.logits(x)
    return called


@contextmanager
def _profile(watch: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Watch all calls inside the block; a profiler that was on before is on again afterwards.

    A profiler written in C is an object, and not a function that could be set again: it is paused if it can be, as
    cProfile can, and otherwise left alone, and nothing is watched.
    """
    before: Any = sys.getprofile()
    written_in_c = before is not None and not callable(before)
    if written_in_c and not (hasattr(before, "disable") and hasattr(before, "enable")):
        yield
        return
    if written_in_c:
        before.disable()

    def both(frame: FrameType, event: str, argument: Any) -> None:
        before(frame, event, argument)  # it keeps a stack of calls, from which none may be missing
        watch(frame, event, argument)

    sys.setprofile(both if callable(before) else watch)
    try:
        yield
    finally:
        sys.setprofile(None if written_in_c else before)
        if written_in_c:
            before.enable()
