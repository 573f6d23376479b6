"""The fall probability: its fit on rows with a known law, and the comparison of express with AutoAttack."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmarks import doubt_calibration, express_agreement

from robustassay.analysis import doubt

LAW = (2.0, -1.2, -0.7, 0.05, -1.5)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    left, backwards = rng.uniform(0, 1, 6000), rng.choice([20.0, 90.0, 400.0, 3000.0], 6000)
    standard = rng.choice([False, True], 6000)
    chance = 1 / (1 + np.exp(-doubt.features(left, backwards, standard) @ np.asarray(LAW)))
    places = {"network": rng.choice(["a", "b"], 6000), "threat": "l1-12", "attack": "express"}
    return pd.DataFrame(
        {**places, "left": left, "gradients": backwards, "standard": standard, "fell": rng.uniform(size=6000) < chance}
    )


def test_the_fit_finds_the_law_and_its_probabilities_hold_on_other_rows(rows):
    first = rows["network"] == "a"
    fitted = tuple(doubt_calibration.fit(rows[first]))
    held = rows[~first].assign(p=doubt_calibration.predicted(rows[~first], fitted))
    bins = doubt_calibration.bins_of(held[held["left"] <= doubt.UNMOVED])
    assert len(bins) >= 4
    assert ((bins["low"] <= bins["predicted"] * 1.5) & (bins["predicted"] / 1.5 <= bins["high"])).all()
    assert (held["p"][held["left"] > doubt.UNMOVED] == 1).all()


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
    (found,) = [part for part in doubt_calibration.rows_of(tmp_path) if part["attack"].eq("express").all()]
    assert len(found) == round(3 * row["express"]) or row["express"] == 0
