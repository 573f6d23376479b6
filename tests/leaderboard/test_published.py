"""The embedded entries of RobustBench, and measured entries for corruptions among them."""

import json

import numpy as np
import pandas as pd
import pytest

from robustassay import models
from robustassay.analysis.corruptions import CLEAN
from robustassay.cli import main
from robustassay.data.corruptions import corruption_grid
from robustassay.errors import BadData
from robustassay.evaluation.corruption_records import FILE, CorruptionRecords
from robustassay.leaderboard import boards
from robustassay.leaderboard.published import published_corruptions, published_entries
from robustassay.models.weights import hash_state


def predictions(images=6, seed=0):
    draw, cells = np.random.default_rng(seed), [(CLEAN, 0), *((one.kind, one.severity) for one in corruption_grid())]
    rows = [(kind, severity, f"s{at}", bool(draw.random() < 0.7)) for kind, severity in cells for at in range(images)]
    return pd.DataFrame(rows, columns=["kind", "severity", "sample_id", "correct"])


def records_of(name, frame):
    identity = {"name": name, "weights": hash_state(models.load(name))}
    return CorruptionRecords(identity, "cifar10-1k", frame)


def test_all_published_entries_are_read_and_stand_on_seven_boards():
    made = boards(published_entries())
    assert {str(board.threat): len(board.entries) for board in made} == {
        "cifar10 L2 0.5": 21,
        "cifar10 Linf 8/255": 99,
        "cifar10 corruptions": 23,
        "cifar100 Linf 8/255": 38,
        "cifar100 corruptions": 13,
        "imagenet Linf 4/255": 30,
        "imagenet corruptions": 12,
    }
    (xiao,) = [entry for entry in made[1].entries if entry.card.name == "Xiao2020Enhancing"]
    # The numbers that the paper prints for this model, in section 3.1.
    assert (xiao.card.reported, xiao.robust.value, xiao.best_known.value) == (0.524, 0.185, 0.074)
    assert xiao.unreliable


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "imagenet"])
def test_the_published_score_is_the_mean_of_the_published_cells(dataset):
    means = published_corruptions(dataset).groupby("model")["accuracy"].mean()
    scores = {
        entry.card.name: entry.robust.value
        for entry in published_entries()
        if (entry.threat.dataset, entry.threat.norm) == (dataset, "corruptions")
    }
    shared = scores.keys() & set(means.index)
    assert len(shared) >= 0.9 * len(scores)
    for name in shared:
        assert scores[name] == pytest.approx(means[name], abs=2e-4), name


def test_a_measured_entry_for_corruptions_stands_among_the_published_ones(tmp_path, capsys):
    frame = predictions()
    records_of("vgg11-natural", frame).write(tmp_path / "vgg11" / FILE)
    arguments = ["leaderboard", "build", str(tmp_path), "-o", str(tmp_path / "out"), "--published", "robustbench"]
    assert main([*arguments, "--board", str(tmp_path / "none")]) == 0
    made = {
        (board["dataset"], board["norm"]): board["entries"]
        for board in json.loads((tmp_path / "out/board.json").read_text())["boards"]
    }
    corrupted = made["cifar10", "corruptions"]
    assert len(corrupted) == 24
    (own,) = [entry for entry in corrupted if entry["kind"] == "measured"]
    assert own["id"] == "vgg11-natural"
    expected = frame[frame["kind"] != CLEAN]["correct"].mean()
    assert own["robust"]["value"] == pytest.approx(expected)
    assert own["robust"]["low"] < expected < own["robust"]["high"]
    values = [entry["best_known"]["value"] for entry in corrupted]
    assert values == sorted(values, reverse=True)
    text = (tmp_path / "out/board.md").read_text()
    assert "7.4% external" in text
    assert "| reported |" in text
    assert "| verified |" in text


def test_part_of_the_grid_is_no_entry_and_a_damaged_file_is_named(tmp_path, capsys):
    frame = predictions()
    records_of("vgg11-natural", frame[frame["kind"] != "fog"]).write(tmp_path / "a" / FILE)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / FILE).write_bytes(b"nothing")
    with pytest.raises(BadData, match="holds no predictions"):
        CorruptionRecords.read(tmp_path / "b" / FILE)
    assert main(["leaderboard", "build", str(tmp_path), "-o", str(tmp_path / "out"), "--board", "none"]) == 2
    assert "70 of 75 corruptions" in capsys.readouterr().err
