"""The study robustbench2021: what is planned, that nothing is done twice, and that findings follow from numbers."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from robustassay import models
from robustassay.cli import main
from robustassay.data.corruptions import CorruptionSpec
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation.progress import NoProgress
from robustassay.studies import analyses
from robustassay.studies.analyses.analysis import ADVERSARIAL, NATURAL, group
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.robustbench2021 import STUDY
from robustassay.studies.robustbench2021.findings import _fairness, _ood, _shift
from robustassay.studies.robustbench2021.measurements import FIGURES
from robustassay.studies.robustbench2021.plan import analysis_kinds, choose
from robustassay.studies.robustbench2021.settings import FULL, QUICK, SETTINGS, RobustBenchSettings
from robustassay.studies.scope import Scope
from robustassay.studies.task import Key
from robustassay.studies.writer import write

TINY = RobustBenchSettings(
    "a tiny part of it",
    images=8,
    robust_images=6,
    models=("resnet20-natural", "resnet20-pgd"),
    shifts=(CorruptionSpec("fog", 3),),
    ood=("noise",),
    lipschitz_images=2,
    lipschitz_steps=2,
    lipschitz_stages=2,
    attack="fgsm",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rb") / "out"


def nothing(figure, path):
    """Draw no figure."""


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(SETTINGS, "quick", TINY)


def run(out, draw=nothing):
    plan = STUDY.plan(Scope(out, quick=True))
    measured = plan.run(NoProgress())
    return plan, measured, write(STUDY, measured, out, draw)


def test_an_interrupted_study_resumes_and_a_finished_one_is_read(folder, monkeypatch):
    made: list[Key] = []
    whole, stops = AnalysisSetup.predict, True

    def counted(self, key):
        if len(made) == 4 and stops:
            raise Interrupted("Stopped.")
        made.append(key)
        return whole(self, key)

    monkeypatch.setattr(AnalysisSetup, "predict", counted)
    with pytest.raises(Interrupted):
        run(folder)
    stops = False
    plan, *_ = run(folder)
    assert len(made) == len(set(made)) == 2 * 3  # test, shift and out-of-distribution images of each model: none twice
    assert plan.seconds() == 0


def test_the_page_has_the_board_and_every_figure(folder):
    drawn = {}
    _, measured, report = run(folder, lambda figure, path: drawn.update({path: figure}))
    page = (folder / "study.md").read_text()
    for name, figure in FIGURES.items():
        assert f"(as {figure})" in page or name == "privacy"
    assert "Figure 7: it needs images" in page
    for analysis in measured.analyses.values():
        for panel in analysis.panels:
            assert drawn[folder / "figures" / f"{panel.name}.png"].content is panel.content
            assert f"figures/{panel.name}.png" in page
    board = json.loads((folder / "leaderboard" / "board.json").read_text())["boards"][0]
    assert {entry["id"] for entry in board["entries"]} == set(TINY.models)
    assert all(entry["robust"]["samples"] == 6 for entry in board["entries"])
    assert len(report.findings) == 7
    assert report.findings[5].verdict == "cannot be said"


def test_the_command_plans_and_refuses(capsys, tmp_path):
    assert main(["study", "robustbench2021", "--models", "no-such-model", "--out", str(tmp_path)]) == 2
    assert "no-such-model" in capsys.readouterr().err
    assert set(QUICK.models) <= set(models.names())
    assert len(QUICK.models) >= 10
    assert choose([], FULL) == models.names()
    assert "privacy" in analysis_kinds("x")
    assert "privacy" not in analysis_kinds(None)
    with pytest.raises(BadRequest):
        choose(["nothing"], FULL)


def analysis(name, table, more=None):
    return {name: analyses.Analysis(name, name, {name: table, **(more or {})}, (), ())}


def test_verdicts_follow_from_the_numbers():
    robust = np.arange(8.0)
    none = dataclasses.make_dataclass("None_", [])()
    for sign, verdict in ((1, "holds"), (-1, "does not hold"), (0, "cannot be said")):
        table = pd.DataFrame({"robust": robust, "mean over shifts": sign * robust, "robust_rsd": -sign * robust})
        assert _shift(none, analysis("shift", table))[0] == verdict
        assert _fairness(none, analysis("fairness", table))[0] == verdict

    names = [name for name in models.names() if group(name) in (NATURAL, ADVERSARIAL)]
    for low, verdict in ((ADVERSARIAL, "holds"), (NATURAL, "does not hold"), ("", "cannot be said")):
        areas = [0.6 + 0.3 * (low not in ("", group(name))) + 0.001 * at % 0.01 for at, name in enumerate(names)]
        table = pd.DataFrame({"model": names, "ood": "noise", "auroc": areas})
        assert _ood(none, analysis("ood", table, {"ood-all": table}))[0] == verdict
