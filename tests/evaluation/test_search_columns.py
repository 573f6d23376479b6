"""The trace of margins and the highest logits of a record, against closed-form answers."""

from dataclasses import dataclass
from typing import final

import numpy as np
import pytest
import torch
from torch import Tensor

from robustassay import attacks
from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.evaluation.search_columns import TOP, rounded
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.target import GradientAccess, LocalModel
from robustassay.target.access import ScoreAccess
from robustassay.target.margin_trace import PLACES, MarginTrace
from robustassay.threat import LInf, ThreatModel
from tests.support.toys import CPU, Linear, ignore_step, images, run, two_classes

VALUES = 48
EPS = 4 / 255


@final
@dataclass(frozen=True)
class Nothing(Attack[GradientAccess]):
    """Returns the clean images."""

    info = AttackInfo(formula="x0")
    access = GradientAccess
    norms = (LInf,)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        return x0


@pytest.fixture(scope="module")
def toy() -> tuple[Linear, Tensor, Tensor]:
    """A linear model of two classes, and images of class 0 at all distances from its boundary."""
    model, x = two_classes(VALUES, margin=1.2), images(24, (VALUES,))
    kept = model(x).argmax(1) == 0
    return model, x[kept], torch.zeros(int(kept.sum()), dtype=torch.int64)


def margin(model: Linear, image: Tensor) -> float:
    own, other = model(image[None])[0].tolist()
    return float(own - other)


def test_the_trace_falls_from_the_clean_margin_to_the_recorded_one(toy):
    model, x, labels = toy
    records, x_adv = run(model, attacks.create("pgd:steps=20,rel_step=0.2"), LInf(EPS), x, labels)
    assert 0 < records["success"].sum() < len(records)
    slope = float((model.weight[1] - model.weight[0]).detach().abs().sum())
    for row, record in enumerate(records.to_dict("records")):
        queries, trace = record["trace_queries"], record["trace_margins"]
        assert queries[0] == 0
        assert trace[0] == pytest.approx(record["clean_margin"], rel=1e-3)
        assert trace[-1] == pytest.approx(record["margin"], rel=1e-3)
        assert (np.diff(trace) < 0).all()
        assert (np.diff(queries) > 0).all()
        assert queries[-1] <= record["queries"]
        if record["success"]:
            assert queries[-1] == record["claimed_at_query"]
            assert trace[-1] == pytest.approx(margin(model, x_adv[row]), rel=1e-3)
        else:  # PGD on a linear model ends in the corner of the ball
            assert trace[-1] == pytest.approx(record["clean_margin"] - EPS * slope, rel=1e-3)


def test_an_attack_that_does_nothing_has_one_point(toy):
    model, x, labels = toy
    records, _ = run(model, Nothing(), LInf(EPS), x, labels)
    assert (records["queries"] == 1).all()
    assert all(list(queries) == [0] for queries in records["trace_queries"])


def test_logits_are_those_of_the_model_before_and_after(toy):
    model, x, labels = toy
    records, x_adv = run(model, attacks.create("pgd:steps=10"), LInf(EPS), x, labels)
    for which, image in (("clean", x), ("adv", x_adv)):
        rows = slice(None) if which == "clean" else np.flatnonzero(records["success"])
        expected, order = model(image[rows]).detach().sort(dim=1, descending=True)
        assert np.allclose(np.stack(records[f"{which}_top_logits"][rows].tolist()), expected, rtol=1e-3)
        assert np.array_equal(np.stack(records[f"{which}_top_labels"][rows].tolist()), order)
    standing = records[~records["success"].astype(bool)]
    assert len(standing)
    lead = np.stack(standing["adv_top_logits"].tolist())
    assert np.allclose(lead[:, 0] - lead[:, 1], standing["margin"], rtol=1e-2), "at the lowest margin of all queries"


def test_the_five_highest_logits_are_kept_the_lower_class_first():
    model = Linear(torch.zeros(9, 4), torch.tensor([1.0, 3, 2, 3, 0, -1, 2.5, 0, 0]))
    records, _ = run(model, Nothing(), LInf(EPS), torch.full((1, 4), 0.5), torch.tensor([1]))
    assert list(records["clean_top_labels"][0]) == [1, 3, 6, 2, 0]
    assert list(records["clean_top_logits"][0]) == [3, 3, 2.5, 2, 1]
    assert TOP == 5


@pytest.mark.parametrize("name", ["square:steps=40", "nes:steps=2,samples=10"])
def test_how_many_points_are_asked_about_together_changes_no_trace(toy, name, monkeypatch):
    model, x, labels = toy
    whole, _ = run(model, attacks.create(name), LInf(EPS), x, labels)
    monkeypatch.setattr(ScoreAccess, "points_per_call", 1)
    alone = [run(model, attacks.create(name), LInf(EPS), x[at : at + 1], labels[at : at + 1], ids=[f"row-{at}"])[0]
             for at in range(4)]  # fmt: skip
    for column in ("trace_queries", "trace_margins", "adv_top_labels", "adv_top_logits"):
        for row, one in enumerate(alone):
            assert np.array_equal(whole[column][row], one[column][0]), column


def test_a_minimum_norm_attack_has_distances_instead(toy):
    model, x, labels = toy
    records, _ = run(model, attacks.create("fmn:steps=20"), LInf(EPS), x, labels)
    claimed = records["claimed"].astype(bool)
    assert claimed.any()
    assert all(len(found) == 0 for found in records["trace_queries"][claimed])
    assert all(len(found) for found in records["improvements"][claimed])


def test_labels_alone_give_no_margins(toy):
    model, x, labels = toy
    target = LocalModel(model, 2, CPU, 32)
    target.gives_scores = False
    wave = Wave([str(row) for row in range(len(x))], x, labels)
    records, _ = run_wave(target, attacks.create("rays"), ThreatModel(LInf(EPS)), wave, 0, 40, ignore_step)
    for column in ("trace_queries", "trace_margins", "clean_top_labels", "adv_top_logits"):
        assert records[column].to_pylist() == [[]] * len(x)


def test_the_places_of_a_trace_are_few_and_what_comes_later_counts_at_the_end():
    assert len(PLACES) < 32
    assert list(PLACES[:9]) == [0, 1, 2, 3, 4, 6, 8, 12, 16]
    trace, rows = MarginTrace(2, CPU), torch.arange(2)
    trace.restart(rows, torch.tensor([5.0, 4.0]))
    trace.add(rows, torch.tensor([0, 4]), torch.tensor([[3.0], [9.0]]), None)
    trace.add(rows[:1], torch.tensor([10**6]), torch.tensor([[1.0, 2.0]]), None)
    queries, lowest = trace.lowest_so_far(torch.tensor([10**6 + 2, 5]))
    assert lowest[0, 0] == 5
    assert (lowest[0, 1:-1] == 3).all()
    assert lowest[0, -1] == 1
    assert (lowest[1] == 4).all()
    assert queries[0, -1] == 10**6 + 2
    assert queries[1].max() == 5
    trace.restart(rows[:1], torch.tensor([5.0]))
    assert (trace.lowest_so_far(torch.tensor([9, 9]))[1][0] == 5).all()


def test_rounding_keeps_four_digits():
    values = np.array([0.0, np.inf, -np.inf, 12345.678, -1e-7, 3.14159])
    assert np.allclose(rounded(values), values, rtol=1e-4, atol=0)
    assert rounded(np.array([1.00001]))[0] == 1.0
