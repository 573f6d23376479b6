"""The recorder with which docs/queries.md compares libraries: it counts every query and measures every point."""

import numpy as np
import pytest
import torch
from benchmarks.recorder import QueriesSpent, QueryRecorder
from benchmarks.winners import winner
from torch import Tensor

CLEAN = torch.full((1, 2, 2), 0.5)


def says_one_above_half(x: Tensor) -> Tensor:
    """Two classes: 1 where the values sum to more than those of the clean image."""
    return torch.stack((torch.zeros(len(x)), x.flatten(1).sum(1) - 2), 1)


def shifted(*by: float) -> Tensor:
    """Images whose first value is moved."""
    images = CLEAN.repeat(len(by), 1, 1, 1)
    images[:, 0, 0, 0] += torch.tensor(by)
    return images


def recorder(queries: int, order: float = 2) -> QueryRecorder:
    return QueryRecorder(says_one_above_half, CLEAN, 0, order, queries)


def test_the_nearest_point_in_the_box_with_another_label_counts_from_its_query_on():
    seen = recorder(6)
    answers = seen(shifted(-0.1, 0.6, 0.4, 0.45, 0.2, -0.3))
    assert torch.equal(answers, says_one_above_half(shifted(-0.1, 0.6, 0.4, 0.45, 0.2, -0.3)))
    assert seen.best == pytest.approx([np.inf, np.inf, 0.4, 0.4, 0.2, 0.2])
    assert seen.reached(2) == (np.inf, None), "outside the box, or still the right label"
    distance, point = seen.reached(4)
    assert distance == pytest.approx(0.4)
    assert point is not None
    assert torch.equal(point, shifted(0.4)[0])
    with pytest.raises(ValueError, match="nothing is known of 7"):
        seen.reached(7)


def test_distance_is_taken_in_the_norm_asked_for():
    point = CLEAN[None] + 0.1
    for order, size in ((2.0, 0.2), (np.inf, 0.1), (1.0, 0.4)):
        seen = recorder(1, order)
        seen(point)
        assert seen.reached(1)[0] == pytest.approx(size)


def test_an_image_sent_again_costs_nothing_and_neither_does_the_clean_one():
    seen = recorder(2)
    for _ in range(5):
        seen(torch.cat((CLEAN[None], shifted(0.3, 0.3, 0.1))))
    assert seen.best == pytest.approx([0.3, 0.1])
    assert len(seen.after_image) == 20
    assert seen.after_image[:4] == pytest.approx([np.inf, 0.3, 0.3, 0.1])


def test_the_recorder_ends_the_attack_after_the_last_query_and_keeps_what_came_before():
    seen = recorder(2)
    with pytest.raises(QueriesSpent):
        seen(shifted(0.3, 0.2, 0.1))
    assert seen.best == pytest.approx([0.3, 0.2])
    assert not issubclass(QueriesSpent, Exception), "a library's own handler would swallow it"


def test_an_attack_that_asks_in_circles_is_ended():
    seen = recorder(1)
    for _ in range(QueryRecorder.ENOUGH + 1):
        seen(shifted(0.3))
    with pytest.raises(QueriesSpent):
        seen(shifted(0.3))


@pytest.mark.parametrize(
    ("results", "higher", "best"),
    [
        ({"ours": 1.0, "ART": 2.0}, False, "ours"),
        ({"ours": 1.009, "ART": 1.0, "foolbox": 3.0}, False, "tie"),
        ({"ours": 1.02, "ART": 1.0}, False, "**ART**"),
        ({"ours": 0.4, "ART": 0.5}, True, "**ART**"),
        ({"ours": 0.0, "ART": 0.0}, False, "tie"),
    ],
)
def test_libraries_within_one_percent_are_a_tie(results, higher, best):
    assert winner(results, higher) == best
