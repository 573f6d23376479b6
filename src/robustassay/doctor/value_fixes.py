"""Attacks on values inside a model that have no effect on its logits at the images: they are moved all the same.

A single value is pushed up or down while the logits are attacked, a condition to its other value. Several values are
moved to where those of another class lie.
"""

import math
from collections.abc import Sequence
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.defenses.defended import Pass
from robustassay.doctor.closed_branches import pushed_conditions
from robustassay.doctor.function_trace import FunctionCall, outputs_of
from robustassay.doctor.gradient_fixes import FixedGradients, GradientFix, StraightThrough, recorded, untouched_by_rules
from robustassay.doctor.inactive_values import MIN_VARIATION, InactiveValues, find_inactive_values
from robustassay.doctor.margins import LINEAR_MARGIN, inner_scores, typical_margin
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.taps import Traced

MAX_PUSHED: Final = 3
"""Single values that are pushed, one after the other, both ways."""

MAX_READ: Final = 3
"""Tensors of several values that are moved to other classes, one after the other."""

SAME: Final = 0.99
"""Correlation above which two tensors say the same of the images."""

MIN_ACCURACY: Final = 0.5
"""Fraction of the images whose own class has the nearest mean: below, the values do not tell classes apart."""

ANCHORS: Final = 128
"""Images, at most, whose values give the means of the classes."""

PART: Final = 32
"""Images of one pass."""


@final
class PushedValue(GradientFix):
    """Lowers the winner's logit by what an inner value has moved from a centre, so that an attack moves it on.

    The push grows like a logarithm: where the value has moved far, the logits lead.
    """

    def __init__(self, call: FunctionCall, centre: float, unit: float, factor: float) -> None:
        super().__init__()
        self.call, self.centre, self.unit, self.factor = call, centre, unit, factor

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the scaled logits, with the winner lowered."""
        with outputs_of(self.call) as outputs:
            logits = forward_pass(x)
        value = recorded(outputs)[-1].reshape(len(x), 1)
        with untouched_by_rules():
            lead = ((value.float() - self.centre) / self.unit).asinh().to(logits)
            winner = F.one_hot(logits.detach().argmax(1), logits.shape[1])
            return self.factor * logits - LINEAR_MARGIN * lead * winner


@final
class ClassMeans(GradientFix):
    """Takes the nearness of inner values to the mean of each class as logits."""

    def __init__(self, call: FunctionCall, centre: Tensor, scale: Tensor, means: Tensor, present: Tensor) -> None:
        super().__init__()
        self.call = call
        self.centre, self.scale = nn.Buffer(centre), nn.Buffer(scale)
        self.means, self.present = nn.Buffer(means), nn.Buffer(present)

    @classmethod
    def fit(cls, call: FunctionCall, values: Tensor, labels: Tensor, classes: int) -> "ClassMeans":
        """Take the means of the classes among these images; values that are equal on all of them do not count."""
        centre, scale = values.mean(0), values.std(0)
        scale = torch.where(scale > MIN_VARIATION * values.abs().amax(0), scale, math.inf)
        members = F.one_hot(labels, classes).to(values)
        count = members.sum(0)
        means = members.T @ ((values - centre) / scale) / count.clamp(min=1)[:, None]
        return cls(call, centre, scale, means, count > 0)

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return how near the values of this call are to each class."""
        with outputs_of(self.call) as outputs:
            forward_pass(x)
        values = recorded(outputs)[-1].reshape(len(x), -1)
        with untouched_by_rules():
            return self.nearness(values if values.dtype == torch.float64 else values.float())

    def nearness(self, values: Tensor) -> Tensor:
        """Return minus half of the squared distance to each mean, up to a constant; absent classes come last."""
        centre, scale, means = (fitted.to(values) for fitted in (self.centre, self.scale, self.means))
        scores = (values - centre) / scale @ means.T - means.square().sum(1) / 2
        return torch.where(self.present, scores, scores.detach().amin(1, keepdim=True))


def value_fixes(
    probes: ProbeSet, rules: Sequence[tuple[StraightThrough, str]] = ()
) -> list[tuple[list[GradientFix], str]]:
    """Build the attacks on inner values without effect, with the words for each.

    Rules for what rounds or detaches are applied too. Soft rules are not: under them a closed gate has an effect.
    """
    front = [fix for fix, _ in rules if not fix.soft][:1]
    found = find_inactive_values(probes, front)
    pushes = _pushes(probes, [values for values in found if values.is_scalar], front)
    moves = _class_means(probes, [values for values in found if not values.is_scalar])
    return [([*fixes, *front], how) for fixes, how in (*_branches(probes, front), *pushes, *moves)]


def _branches(probes: ProbeSet, rules: Sequence[GradientFix]) -> list[tuple[list[GradientFix], str]]:
    size = typical_margin(probes, rules)
    return list(pushed_conditions(probes, size)) if 0 < size < math.inf else []


def _pushes(
    probes: ProbeSet, found: Sequence[InactiveValues], rules: Sequence[GradientFix]
) -> list[tuple[list[GradientFix], str]]:
    size = typical_margin(probes, rules)
    if not 0 < size < math.inf:
        return []
    kept: list[InactiveValues] = []
    for one in found:
        if len(kept) < MAX_PUSHED and not any(_rise_together(one.values, other.values) for other in kept):
            kept.append(one)
    return [
        ([_push(one, sign, LINEAR_MARGIN / size)], f"{one.call} pushed {way}")
        for one in kept
        for sign, way in ((1, "up"), (-1, "down"))
    ]


def _push(one: InactiveValues, sign: int, factor: float) -> PushedValue:
    centre, unit = float(one.values.mean()), float(one.values.std())
    return PushedValue(one.call, centre, sign * unit, factor)


def _class_means(probes: ProbeSet, found: Sequence[InactiveValues]) -> list[tuple[list[GradientFix], str]]:
    """Fit the class means of every tensor; keep the most accurate of those that say different things."""
    if not found:
        return []
    outputs, labels = _anchors(probes, [one.call for one in found])
    if len(set(labels.tolist())) < 2:  # no other class to go to
        return []
    fitted: list[tuple[float, ClassMeans, Tensor]] = []
    for one in found:
        values = torch.cat(outputs[one.call]) if outputs[one.call] else labels[:0]
        if len(values) != len(labels):  # other images take another way
            continue
        means = ClassMeans.fit(one.call, values, labels, probes.target.classes)
        scores = means.nearness(values)
        accuracy = float((scores.argmax(1) == labels).double().mean())
        if accuracy >= MIN_ACCURACY and not any(_rise_together(scores, other) for *_, other in fitted):
            fitted.append((accuracy, means, scores))
    best = sorted(fitted, key=lambda one: -one[0])[:MAX_READ]
    return [(inner_scores(probes, means), f"{means.call} moved to other classes") for _, means, _ in best]


@torch.no_grad()
def _anchors(probes: ProbeSet, calls: Sequence[FunctionCall]) -> tuple[dict[FunctionCall, list[Tensor]], Tensor]:
    """Return the values of these calls on the images and the background, in parts, and the labels the model gives."""
    found: dict[FunctionCall, list[Tensor]] = {call: [] for call in calls}

    def keep(call: FunctionCall, output: Tensor) -> None:
        if call in found:
            found[call].append(output.detach().reshape(len(output), -1).double())

    traced = probes.target.with_module(FixedGradients(probes.target.module, [Traced(keep)]))
    x = probes.x0
    if probes.background is not None:
        x = torch.cat((x, probes.background[: max(0, ANCHORS - len(x))].to(x)))
    labels = [traced.call_differentiable(part).argmax(1) for part in torch.split(x, PART)]
    return found, torch.cat(labels)


def _rise_together(one: Tensor, other: Tensor) -> bool:
    """Whether the values of two tensors of one shape rise and fall together over the images."""
    return bool(torch.corrcoef(torch.stack((one.flatten(), other.flatten())))[0, 1].abs() > SAME)
