"""The showcase: its file, its reasons, and its commands."""

import dataclasses
import json

import pytest

import robustassay as ra
from robustassay.errors import StoreFailed
from robustassay.evaluation.progress import NoProgress
from robustassay.studies import quickstart
from robustassay.studies.showcase import read_showcase

SMALL = tuple(
    dataclasses.replace(one, attacks=("pgd:steps=1", "pgd:steps=4") if one.attacks == quickstart.BOTH else one.attacks)
    for one in quickstart.MODELS
    if one.folder in ("pgd", "scores")
)


@pytest.fixture
def small(monkeypatch):
    scores = dataclasses.replace(SMALL[1], search=ra.Search(query_budget=20, self_test=0))
    monkeypatch.setattr(quickstart, "MODELS", (dataclasses.replace(SMALL[0], search=ra.Search(self_test=0)), scores))
    monkeypatch.setattr(quickstart, "PGD", "pgd-1")  # two runs of one attack are numbered
    monkeypatch.setattr(quickstart, "KINDS", ("gaussian-noise",))
    monkeypatch.setattr(quickstart, "CORRUPTED_MODELS", ("resnet20-pgd",))


def test_the_file_holds_the_table_and_the_runs_that_it_names(small, tmp_path):
    found = quickstart.run_showcase(tmp_path, 8, 0, NoProgress())
    assert read_showcase(tmp_path) == found
    trained, scores = found.rows
    assert trained.clean >= (trained.pgd or 0) >= trained.assay
    assert scores.pgd is None
    for row in found.rows:
        loaded = ra.Result.load((tmp_path / row.runs[0]).parent)
        assert (loaded.robust_accuracy, *loaded.interval) == (row.assay, row.low, row.high)
    broken_later = round(8 * ((trained.pgd or 0) - trained.assay))
    assert (f"breaks {broken_later} more" in trained.why) or (not broken_later and "no more" in trained.why)
    assert found.corruptions.bars[0].corrupted <= 1


def test_a_damaged_file_is_named_and_a_missing_one_is_none(tmp_path):
    assert read_showcase(tmp_path) is None
    (tmp_path / "showcase.json").write_text(json.dumps({"version": 1, "rows": [{}]}))
    with pytest.raises(StoreFailed, match=r"showcase\.json"):
        read_showcase(tmp_path)


def test_every_line_names_a_command_that_the_command_line_reads():
    from robustassay.cli import app

    for one in quickstart.MODELS:
        import shlex

        _, bound, _ = app.parse_args(shlex.split(one.command(10))[1:], print_error=False, exit_on_error=False)
        assert bound.kwargs["attack"] == list(one.attacks)


def test_own_gradient_is_zero_where_a_defense_rounds():
    import torch

    from robustassay.evaluation.model_ref import ModelRef

    x = torch.rand(1, 3, 32, 32, requires_grad=True)
    ModelRef.of("own-gradient|bit-depth|resnet20-natural").module(x).sum().backward()
    assert x.grad is None or not x.grad.any()
