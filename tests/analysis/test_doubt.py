"""The fall probability: its fit on rows with a known law, and the comparison of express with AutoAttack."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmarks import doubt_calibration, express_agreement, express_page

from robustassay.analysis import doubt

LAW = (2.0, -1.2, -0.7, 0.05, -1.5, 0.4, 0.6, -0.1)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    left, backwards = rng.uniform(0, 1, 6000), rng.choice([20.0, 90.0, 400.0, 3000.0], 6000)
    standard = rng.choice([False, True], 6000)
    known = {"left": left, "gradients": backwards, "standard": standard, "late": rng.exponential(0.2, 6000)}
    rows = pd.DataFrame({**known, "rough": rng.choice([0.005, 0.05, 0.3], 6000)})
    chance = 1 / (1 + np.exp(-doubt.features(rows) @ np.asarray(LAW)))
    places = {"network": rng.choice(["a", "b", "c"], 6000), "threat": "l1-12", "attack": "express"}
    return rows.assign(**places, fell=rng.uniform(size=6000) < chance)


def test_the_fit_finds_the_law_and_its_probabilities_hold_on_other_rows(rows):
    first = rows["network"] != "a"
    fitted = tuple(doubt_calibration.fit(rows[first]))
    held = rows[~first].assign(p=doubt.probability_of(rows[~first], fitted))
    bins = doubt_calibration.bins_of(held[held["left"] <= doubt.UNMOVED])
    assert len(bins) >= 4
    assert ((bins["low"] <= bins["predicted"] * 1.5) & (bins["predicted"] / 1.5 <= bins["high"])).all()
    assert (held["p"][held["left"] > doubt.UNMOVED] == 1).all()


def test_the_features_that_tell_on_networks_left_out_are_chosen(rows):
    assert next(iter(doubt_calibration.chosen_features(rows))) == "margins of the run as well"
    shuffled = rows.assign(**{name: rows[name].sample(frac=1, random_state=1).to_numpy() for name in ("late", "rough")})
    losses = doubt_calibration.chosen_features(shuffled)
    assert min(losses.values()) > 0.999 * losses["margin"]
    assert (doubt_calibration.fit(rows, 5)[5:] == 0).all()


def traced(left: list[float], early: list[float], **columns: object) -> pd.DataFrame:
    """Records whose margins were these parts of the clean margin, 2, after 24 queries and at the end."""
    margins = [[2.0, 2 * first, 2 * last] for first, last in zip(early, left, strict=True)]
    named = {
        "clean_ok": True,
        "success": [part < 0 for part in left],
        "margin": 2 * np.array(left),
        "clean_margin": 2.0,
    }
    known = {"backwards": 100, "trace_queries": [[0.0, 24.0, 90.0]] * len(left), "trace_margins": margins}
    return pd.DataFrame({**named, **known, **columns})


def test_margins_that_fall_late_are_seen_in_the_sample_and_in_the_run():
    smooth = doubt.described(traced([0.5, 0.3, -0.1], [0.5, 0.3, 0.1]), doubt.AttackTraits())
    assert smooth["late"].tolist()[:2] == [0, 0]
    assert (smooth["rough"] < doubt.SMOOTH).all(), "a sample that was close after 24 queries says nothing"
    rough = doubt.described(traced([0.5, 0.3, -0.1], [0.5, 0.6, 0.4]), doubt.AttackTraits())
    assert rough["late"][1] == pytest.approx(np.log(2))
    assert rough["rough"].unique() == pytest.approx([(0.5 + 1 + 0.1) / 13])
    under_l1 = doubt.described(traced([0.3], [0.6]), doubt.AttackTraits("L1"))
    assert under_l1["late"].tolist() == [0], "120 queries there, and the trace ends after 90"


def test_without_a_trace_the_margin_is_all_that_is_known():
    records = traced([0.5, -0.1], [0.6, 0.6])
    for untraced in (
        records.drop(columns=["trace_queries", "trace_margins"]),
        records.assign(trace_queries=[[], []], trace_margins=[[], []]),
        records.assign(trace_queries=None, trace_margins=None),
    ):
        rows = doubt.described(untraced, doubt.AttackTraits())
        assert rows["late"].tolist()[0] == 0
        assert rows["rough"].tolist() == [doubt.SMOOTH] * 2


def test_a_miss_is_counted_only_where_it_was_not_in_doubt(rows):
    table = doubt_calibration.by_attack(rows.assign(p=np.where(rows["left"] < 0.5, 0.5, 0.001)))
    expected = int((rows["fell"] & (rows["left"] >= 0.5)).sum())
    assert table["missed"].tolist() == [expected]
    assert 0 < expected < table["fell"].sum()


def records(broken: list[bool], backwards: int = 10) -> pd.DataFrame:
    named = {"sample_id": [f"s{i}" for i in range(len(broken))], "clean_ok": True, "success": broken}
    return pd.DataFrame({**named, "forwards": 10, "backwards": backwards})


def test_a_row_holds_if_verdicts_agree_and_every_miss_is_in_doubt():
    reference, same = records([True] * 300 + [False] * 300, 70), records([True] * 300 + [False] * 300)
    row = express_agreement.compare(reference, same, [])
    assert (row["holds"], row["misses"], row["equal"], row["cost ratio"]) == (True, 0, 1.0, 5.0)
    missed = records([True] * 299 + [False] * 301)
    assert not express_agreement.compare(reference, missed, ["s5"])["holds"]
    assert express_agreement.compare(reference, missed, ["s299"])["holds"]
    assert not express_agreement.compare(
        reference, records([True] * 290 + [False] * 310), [f"s{i}" for i in range(600)]
    )["holds"]


def test_rows_are_measured_once_and_the_runs_can_be_calibrated(tmp_path, capsys):
    words = ["--networks", "resnet20-pgd", "--threats", "linf:8/255", "--images", "3", "--device", "cpu"]
    words += ["--out", str(tmp_path), "--reference", "autoattack:steps=3,queries=2"]
    express_agreement.main(words)
    first, *table = capsys.readouterr().out.splitlines()
    row = json.loads(first)
    assert (row["network"], row["threat"], row["images"]) == ("resnet20-pgd", "linf:8/255", 3)
    express_agreement.main(words)
    assert capsys.readouterr().out.splitlines() == table, "the second call only prints the table"
    text = express_page.page(tmp_path, "express", ["preresnet8"])
    assert "| resnet20-pgd | linf:8/255 |" in text.partition("## Networks of the choice")[0]
    (found,) = [part for part in doubt_calibration.rows_of(tmp_path) if part["attack"].eq("express").all()]
    assert len(found) == round(3 * row["express"]) or row["express"] == 0
