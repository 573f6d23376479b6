"""The fall probability: its fit on rows with a known law, and the comparison of express with AutoAttack."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks import doubt_calibration, doubt_page, express_agreement, express_page

from robustassay.analysis import doubt, rates

LAW = (-1.356, -1.83, -0.332, 0.151, -3.963, 1.2)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    left, backwards = rng.uniform(0, 1, 6000), rng.choice([20.0, 90.0, 400.0, 3000.0], 6000)
    standard = rng.choice([False, True], 6000)
    rows = pd.DataFrame(
        {"left": left, "gradients": backwards, "standard": standard, "behind": rng.exponential(1, 6000)}
    )
    chance = 1 / (1 + np.exp(-doubt.features(rows) @ np.asarray(LAW)))
    places: dict[str, Any] = {"network": rng.choice(["a", "b", "c"], 6000), "threat": "l1-12", "attack": "express"}
    return rows.assign(**places, fell=rng.uniform(size=6000) < chance)


def test_the_fit_finds_the_law_and_its_probabilities_hold_on_other_rows(rows):
    first = rows["network"] != "a"
    fitted = tuple(doubt_calibration.fit(rows[first]))
    held = rows[~first].assign(p=doubt.probability_of(rows[~first], fitted))
    bins = doubt_page.bins_of(held[held["left"] <= doubt.UNMOVED])
    assert len(bins) >= 4
    assert ((bins["low"] <= bins["predicted"] * 1.5) & (bins["predicted"] / 1.5 <= bins["high"])).all()
    assert (held["p"][held["left"] > doubt.UNMOVED] == 1).all()


def test_what_tells_on_networks_left_out_is_added_and_nothing_else_changes(rows):
    assert next(iter(doubt_calibration.chosen_features(rows))) == "1 and behind"
    shuffled = rows.assign(behind=rows["behind"].sample(frac=1, random_state=1).to_numpy())
    assert next(iter(doubt_calibration.chosen_features(shuffled))) != "behind"
    found = doubt_calibration.fit(rows)
    assert found[[0, 5]] == pytest.approx([LAW[0], LAW[5]], abs=0.25)
    assert found[0] + found[4] == pytest.approx(doubt_calibration.EARLIER[0] + doubt_calibration.EARLIER[4])
    assert tuple(found[1:4]) == doubt_calibration.EARLIER[1:4]
    assert tuple(doubt_calibration.fit(rows, ())) == doubt_calibration.EARLIER


def run_of(clean: list[float], margin: list[float], **columns: object) -> pd.DataFrame:
    """The records of a run with these margins, before and at the end."""
    broken = [last < 0 for last in margin]
    named = {"clean_ok": np.array(clean) > 0, "success": broken, "margin": margin, "clean_margin": clean}
    return pd.DataFrame({**named, "backwards": 40, **columns})


def test_a_margin_that_fell_less_than_others_is_behind():
    found = doubt.described(run_of([0.1, 1.0, 1.0, 1.0, -0.5], [0.09, 0.6, 0.2, -0.1, -0.5]), doubt.AttackTraits())
    usual = (0.4 + 0.8) / 2
    assert found["behind"].tolist() == pytest.approx([doubt.FURTHEST, np.log(usual / 0.4), 0, 0, 0])
    assert found["left"].tolist()[:2] == pytest.approx([0.9, 0.6])


def test_samples_that_a_confirming_run_moved_farther_put_no_other_in_doubt():
    costs = {"iterations": 1, "forwards": 1, "queries": 1, "seconds": 1.0, "distance": np.nan}
    names = {"sample_id": ["a", "b", "c"], "attack": "bim", **costs}
    plain = run_of([1.0, 1.0, 1.0], [0.9, 0.9, 0.8], **names)
    again = run_of([1.0, 1.0], [0.1, 0.2], **{**names, "sample_id": ["b", "c"]})
    both = rates.worst_case({"bim": plain, "confirm": again})
    first, second = (doubt.described(records, doubt.AttackTraits())["behind"] for records in (plain, both))
    assert first[0] == second[0] == 0
    assert second[2] == pytest.approx(np.log(0.85 / 0.8)), "beside the other sample of the confirming run"


def test_alone_a_sample_is_not_behind_and_a_run_without_margins_is_judged():
    alone = doubt.described(run_of([0.1], [0.09]), doubt.AttackTraits())
    assert alone["behind"].tolist() == [0]
    unknown = doubt.described(run_of([1.0, 1.0], [np.nan, np.nan]), doubt.AttackTraits())
    assert unknown[["left", "behind"]].to_numpy().tolist() == [[1, 0]] * 2
    assert doubt.fall_probability(run_of([1.0, 1.0], [1.0, 1.0])).tolist() == [1, 1]


def test_a_sample_that_the_attack_failed_to_move_is_more_probable_to_fall():
    clean = [0.1, 0.6, *[1.0] * 8]
    margin = [0.09, 0.54, *[0.2] * 8]
    small, larger, *_ = doubt.fall_probability(run_of(clean, margin))
    alone = doubt.fall_probability(run_of(clean[:1], margin[:1]))
    assert small > larger > alone[0]
    assert small > doubt.LIMIT


def test_a_miss_is_counted_only_where_it_was_not_in_doubt(rows):
    table = doubt_page.by_attack(rows.assign(p=np.where(rows["left"] < 0.5, 0.5, 0.001)))
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
    text = express_page.page([tmp_path], "express", ["preresnet8"])
    assert "| resnet20-pgd | linf:8/255 |" in text.partition("## Networks of the choice")[0]
    (found,) = [part for part in doubt_calibration.rows_of(tmp_path) if part["attack"].eq("express").all()]
    assert len(found) == round(3 * row["express"]) or row["express"] == 0
