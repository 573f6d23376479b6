"""The study robustbench2021: what is planned, that nothing is done twice, and that findings follow from numbers."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from robustassay import data, models
from robustassay.cli import main
from robustassay.data.corruptions import CorruptionSpec
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation.progress import NoProgress
from robustassay.studies import analyses
from robustassay.studies import robustbench2021 as paper
from robustassay.studies.analyses.analysis import AGAINST, NATURAL, group
from robustassay.studies.robustbench2021 import plan
from robustassay.studies.robustbench2021.findings import _fairness, _ood, _shift, _together
from robustassay.studies.workbench import Need, Workbench

TINY = paper.Scale(
    "a tiny part of it",
    images=8,
    robust_images=6,
    models=("resnet20-natural", "resnet20-pgd"),
    shifts=(CorruptionSpec("fog", 3),),
    outside=("noise",),
    slope_images=2,
    slope_steps=2,
    slope_stages=2,
    attack="fgsm",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rb") / "out"


def nothing(panel, path):
    """Draw no picture."""


def run(out, draw=nothing, scale=TINY):
    bench = paper.workbench(paper.choose(None, scale), data.load("cifar10-1k").take(scale.images), scale, out)
    kinds = paper.kinds(None)
    needs = analyses.needs(bench, kinds)
    done = bench.run(needs, NoProgress())
    report = paper.write(done, analyses.make(done, kinds), scale, out, bench.folders(), (), draw)
    return bench, needs, report


def test_an_interrupted_study_resumes_and_a_finished_one_is_read(folder, monkeypatch):
    made: list[Need] = []
    whole, stops = Workbench._answers, True

    def counted(self, need):
        if len(made) == 4 and stops:
            raise Interrupted("Stopped.")
        made.append(need)
        return whole(self, need)

    monkeypatch.setattr(Workbench, "_answers", counted)
    with pytest.raises(Interrupted):
        run(folder)
    stops = False
    bench, needs, _ = run(folder)
    assert len(made) == len(set(made)) == 2 * 3  # test, shift and outside of each model: none twice
    assert bench.estimate(needs) == 0


def test_the_page_has_the_board_and_every_figure(folder):
    drawn = {}
    _, _, report = run(folder, lambda panel, path: drawn.update({path: panel}))
    page = (folder / "study.md").read_text()
    for name, figure in paper.FIGURES.items():
        assert f"(as {figure})" in page or name == "privacy"
    assert "Figure 7: it needs images" in page
    for analysis in report.analyses:
        for panel in analysis.panels:
            assert drawn[folder / "figures" / f"{panel.name}.png"] is panel
            assert f"figures/{panel.name}.png" in page
    board = json.loads((folder / "leaderboard" / "board.json").read_text())["boards"][0]
    assert {entry["id"] for entry in board["entries"]} == set(TINY.models)
    assert all(entry["robust"]["samples"] == 6 for entry in board["entries"])
    assert len(report.findings) == 7
    assert report.findings[5].verdict == "cannot be said"


def test_the_command_plans_and_refuses(capsys, tmp_path):
    assert main(["study", "robustbench2021", "--models", "no-such-model", "--out", str(tmp_path)]) == 2
    assert "no-such-model" in capsys.readouterr().err
    assert set(paper.QUICK.models) <= set(models.names())
    assert len(paper.QUICK.models) >= 10
    assert paper.choose(None, paper.FULL) == models.names()
    assert "privacy" in paper.kinds("x")
    assert "privacy" not in paper.kinds(None)
    with pytest.raises(BadRequest):
        paper.choose(["nothing"], plan.FULL)


def analysis(name, table, more=None):
    return {name: analyses.Analysis(name, name, {name: table, **(more or {})}, (), ())}


def test_verdicts_follow_from_the_numbers():
    robust = np.arange(8.0)
    none = dataclasses.make_dataclass("None_", [])()
    for sign, verdict in ((1, "holds"), (-1, "does not hold"), (0, "cannot be said")):
        table = pd.DataFrame({"robust": robust, "mean over shifts": sign * robust, "robust_rsd": -sign * robust})
        assert _shift(none, analysis("shift", table))[0] == verdict
        assert _fairness(none, analysis("fairness", table))[0] == verdict
    assert _together(["holds", "cannot be said"]) == "holds in part"
    assert _together(["cannot be said"]) == "cannot be said"
    assert _together(["holds", "holds"]) == "holds"

    names = [name for name in models.names() if group(name) in (NATURAL, AGAINST)]
    for low, verdict in ((AGAINST, "holds"), (NATURAL, "does not hold"), ("", "cannot be said")):
        areas = [0.6 + 0.3 * (low not in ("", group(name))) + 0.001 * at % 0.01 for at, name in enumerate(names)]
        table = pd.DataFrame({"model": names, "outside": "noise", "auroc": areas})
        assert _ood(none, analysis("ood", table, {"ood-all": table}))[0] == verdict
