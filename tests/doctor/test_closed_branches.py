"""Branches that no image takes: found where they would change labels, and opened by a push towards their condition."""

import pytest
import torch
from torch import Tensor, nn

from robustassay.doctor.closed_branches import PushedCondition, closed_branch, find_closed_branches
from robustassay.doctor.condition_trace import ConditionTrace
from robustassay.doctor.cross_checks import WhiteBox, inactive_values
from robustassay.doctor.gradient_fixes import FixedGradients
from robustassay.doctor.value_fixes import value_fixes
from robustassay.errors import ModelFailed
from tests.support.patterns import EPS, ByPattern, broken_through, patterns, probes_of
from tests.support.toys import two_classes

LOW, HIGH = 0.3 * EPS, 0.42 * EPS


class Branching(ByPattern):
    """The next class wins where the image lies in a small window of the places along two patterns."""

    def __init__(self) -> None:
        super().__init__()
        drawn = patterns(4)[:, :2]
        self.window = nn.Buffer(drawn - self.clear @ torch.linalg.lstsq(self.clear, drawn).solution)

    def places(self, x: Tensor) -> Tensor:
        """Return how far an image lies along both patterns."""
        return self.scores(x, self.window)

    def holds(self, x: Tensor) -> Tensor:
        """Return which images are in the window."""
        return ((self.places(x) > LOW) & (self.places(x) < HIGH)).all(1)

    def forward(self, x: Tensor) -> Tensor:
        shown = super().forward(x)
        return torch.where(self.holds(x)[:, None], shown.roll(1, 1), shown)


class WithNumbers(Branching):
    """The same, with conditions as numbers that are multiplied."""

    def forward(self, x: Tensor) -> Tensor:
        shown, places = ByPattern.forward(self, x), self.places(x)
        opened = ((places > LOW).float() * (places < HIGH).float()).prod(1, keepdim=True)
        return opened * shown.roll(1, 1) + (1 - opened) * shown


class WithWrittenRows(Branching):
    """The same, with rows that are overwritten."""

    def forward(self, x: Tensor) -> Tensor:
        shown, holds = ByPattern.forward(self, x), self.holds(x)
        shown = shown.clone()
        shown[holds] = shown.roll(1, 1)[holds]
        return shown


class OfOtherParts(Branching):
    """The branch is taken where the image has odd pixel values, which no gradient leads to."""

    def holds(self, x: Tensor) -> Tensor:
        """Return which images have mostly odd values."""
        return ((255 * x).round().long() % 2).float().mean((1, 2, 3)) > 0.8


class WithoutEffect(Branching):
    """The branch only changes the scale of the logits."""

    def forward(self, x: Tensor) -> Tensor:
        shown = ByPattern.forward(self, x)
        return torch.where(self.holds(x)[:, None], 2 * shown, shown)


class OftenTaken(Branching):
    """Some images take the branch and some do not."""

    def holds(self, x: Tensor) -> Tensor:
        """Hold for about half of the images."""
        return x.mean((1, 2, 3)) > 0.5


@pytest.mark.parametrize("model", [Branching, WithNumbers, WithWrittenRows])
def test_a_small_window_is_found_and_entered(model):
    probes = probes_of(model())
    assert len(probes) == 12
    assert broken_through(probes, []) == 0, "or no push is needed"
    assert max(broken_through(probes, fixes) for fixes, _ in value_fixes(probes)) == 12
    assert inactive_values(WhiteBox(probes, probes.clean.double())).value == 1
    found = closed_branch(probes)
    assert (found.value, found.strong) == (1, True)
    assert "100% of the images get another label" in found.evidence


def test_a_branch_that_no_gradient_leads_to_is_an_alarm():
    found = closed_branch(probes_of(OfOtherParts()))
    assert (found.value, found.strong) == (1, True)


@pytest.mark.parametrize("model", [ByPattern, WithoutEffect, OftenTaken])
def test_other_models_raise_no_alarm(model):
    probes = probes_of(model())
    assert find_closed_branches(probes) == []
    found = closed_branch(probes)
    assert (found.value, found.strong, found.unexamined) == (0, False, "")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda x: x[:, 0] > 1, [-1, 1, 4]),
        (lambda x: x[:, 0] <= 1, [1, -1, -4]),
        (lambda x: ~(x[:, 0] < 1), [-1, 1, 4]),
        (lambda x: (x[:, 0] > 1) & (x[:, 1] < 6), [-1, 1, 0]),
        (lambda x: (x[:, 0] > 1) | (x[:, 1] < 6), [5, 2, 4]),
        (lambda x: (x > 1).all(1), [-1, 1, 4]),
        (lambda x: torch.any(x > 3, dim=1), [-2, 1, 3]),
        (lambda x: x[:, 0] == 2, [-2, 0, -3]),
        (lambda x: (x > 1).float().prod(1), [-1, 1, 4]),
        (lambda x: (x > 1).float().amin(1) > 0.5, [-1, 1, 4]),
        (lambda x: (x[:, :1] > 1).reshape(-1).logical_not(), [1, -1, -4]),
    ],
)
def test_distances_of_conditions(condition, expected):
    """The last condition that a function reports is the function itself."""
    x, seen = torch.tensor([[0.0, 1.0], [2.0, 4.0], [5.0, 6.0]], requires_grad=True), []
    with ConditionTrace(3, lambda number, function, holds, distance: seen.append((number, holds, distance))):
        found = condition(x)
    number, holds, distance = seen[-1]
    assert number == len(seen)
    assert torch.equal(holds, found.bool())
    assert distance.tolist() == expected
    assert distance.requires_grad


def test_a_condition_gets_its_other_value():
    x = torch.tensor([0.0, 2.0, 3.0])
    with ConditionTrace(3, lambda *_: None, inverted=2):
        first, second, third = x > 1, x > 2, x > 0
    assert first.tolist() == [False, True, True]
    assert second.tolist() == [True, True, False]
    assert third.tolist() == [False, True, True]


def test_a_condition_that_other_images_do_not_reach_is_a_failure_of_the_model():
    fixed = FixedGradients(two_classes(4), [PushedCondition(1, 1, 1.0, 1.0)])
    with pytest.raises(ModelFailed, match="another way"):
        fixed.differentiable(torch.full((1, 1, 2, 2), 0.5))
