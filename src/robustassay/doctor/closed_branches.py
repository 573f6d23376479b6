"""Finds branches of a model that no image takes, and that would change its labels; pushes images into them.

A model may select what it answers by a condition on the image: a threshold, a check, a mark. Where the condition has
the same value on all images, also on perturbed ones, no attack on the logits knows what lies behind it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.defenses.defended import Pass
from robustassay.doctor.condition_trace import ConditionTrace, Report
from robustassay.doctor.gradient_fixes import FixedGradients, GradientFix, recorded, untouched_by_rules
from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.margins import LINEAR_MARGIN
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.doctor.straight_through import UNSUITABLE
from robustassay.doctor.taps import perturb
from robustassay.errors import ModelFailed
from robustassay.rng import Streams

IMAGES: Final = 8
"""Images that conditions are looked at on; perturbed copies make five times as many."""

MAX_BRANCHES: Final = 3
"""Branches that images are pushed into, one after the other."""

MAX_CONDITIONS: Final = 64
"""A model with more conditions on whole images is not examined."""

MIN_CHANGED: Final = 0.25
"""Fraction of the images whose label a branch must change to matter."""


@final
@dataclass(frozen=True)
class ClosedBranch:
    """A condition with one value on all images: its number in a pass, how far images are, and what it would change."""

    number: int
    function: str
    holds: bool
    distance: Tensor  # per image, positive: how far it is from the other value
    changed: float  # fraction of the images that get another label where the condition has its other value

    def __str__(self) -> str:
        return f"condition {self.number} ({self.function})"


@final
class Conditions(GradientFix):
    """The pass itself, with a report of every condition; one of them may get its other value."""

    def __init__(self, report: Report, inverted: int = 0) -> None:
        super().__init__()
        self.report, self.inverted = report, inverted

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the logits of the pass."""
        with ConditionTrace(len(x), self.report, self.inverted):
            return forward_pass(x)


@final
class PushedCondition(GradientFix):
    """Lowers the winner's logit by how far a condition is from its other value, until it has that value."""

    def __init__(self, number: int, sign: int, unit: float, factor: float) -> None:
        super().__init__()
        self.number, self.sign, self.unit, self.factor = number, sign, unit, factor

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the scaled logits, with the winner raised by the distance that is left."""
        found: list[Tensor] = []

        def keep(number: int, function: str, holds: Tensor, distance: Tensor) -> None:
            if number == self.number:
                found.append(distance)

        with ConditionTrace(len(x), keep):
            logits = forward_pass(x)
        distance = recorded(found)[-1]
        with untouched_by_rules():
            left = (self.sign * distance / self.unit).clamp(min=0).asinh().to(logits)[:, None]
            winner = F.one_hot(logits.detach().argmax(1), logits.shape[1])
            return self.factor * logits + LINEAR_MARGIN * left * winner


def closed_branch(probes: ProbeSet) -> IndicatorResult:
    """Say which part of the images a branch would give another label that none of them takes."""
    name = "closed branch"
    try:
        found = find_closed_branches(probes)
    except (ModelFailed, *UNSUITABLE) as error:
        return IndicatorResult.not_examined(name, MIN_CHANGED, f"the model fails when it is traced ({error})")
    if not found:
        return IndicatorResult(name, 0.0, MIN_CHANGED, "no branch that the images leave out would change their labels")
    most = max(found, key=lambda branch: branch.changed)
    evidence = (
        f"{most} has one value on all images, also on perturbed ones; with the other, {most.changed:.0%} of the images "
        "get another label: find out what opens it"
    )
    return IndicatorResult(name, most.changed, MIN_CHANGED, evidence, ("inactive", "square"), kind="cross-checks")


def find_closed_branches(probes: ProbeSet) -> list[ClosedBranch]:
    """Find the conditions with one value on all images, on which labels depend, the last one first."""
    few = probes.among(torch.arange(len(probes), device=probes.x0.device) < IMAGES)
    found = [branch for branch in _closed(few) if branch.changed >= MIN_CHANGED]
    return found[::-1]


def pushed_conditions(probes: ProbeSet, margin: float) -> Iterator[tuple[list[GradientFix], str]]:
    """Build the attacks that push images into closed branches; `margin` is the typical one of the logits."""
    for branch in find_closed_branches(probes)[:MAX_BRANCHES]:
        unit = max(float(branch.distance.median()), 1e-12)
        push = PushedCondition(branch.number, 1 if branch.holds else -1, unit, LINEAR_MARGIN / margin)
        yield [push], f"{branch} pushed to its other value"


@torch.no_grad()
def _closed(probes: ProbeSet) -> Iterator[ClosedBranch]:
    """Yield the conditions with one value and varying distances on the images and on perturbed ones."""
    if len(probes) < 2:  # with one image, every number is one on whole images
        return
    away = probes.ball(probes.norm.eps).sample(Streams.of(SEED, probes.ids, probes.x0.device))
    shown = torch.cat((probes.x0, away, *perturb(probes.x0)))
    seen, logits = _conditions(probes, shown)
    of_fewer, _ = _conditions(probes, shown[1:])  # constants may have as many rows as there are images
    if [found[:2] for found in seen] != [found[:2] for found in of_fewer] or len(seen) > MAX_CONDITIONS:
        return
    labels = logits[: len(probes)].argmax(1)
    for number, function, holds, distance in seen:
        varies = bool(distance.isfinite().all()) and bool(distance.std() > 0)
        if not varies or bool(holds.any()) != bool(holds.all()):
            continue
        inverted = _run(probes, probes.x0, Conditions(lambda *_: None, number)).argmax(1)
        changed = float((inverted != labels).double().mean())
        yield ClosedBranch(number, function, bool(holds[0]), distance.abs(), changed)


def _conditions(probes: ProbeSet, x: Tensor) -> tuple[list[tuple[int, str, Tensor, Tensor]], Tensor]:
    seen: list[tuple[int, str, Tensor, Tensor]] = []
    logits = _run(probes, x, Conditions(lambda *condition: seen.append(condition)))
    return seen, logits


def _run(probes: ProbeSet, x: Tensor, fix: GradientFix) -> Tensor:
    return probes.target.with_module(FixedGradients(probes.target.module, [fix])).call_differentiable(x)
