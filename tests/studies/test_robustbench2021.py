"""The study robustbench2021: what is planned, that nothing is done twice, and that findings follow from numbers."""

import json
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch

from robustassay import data, models
from robustassay.cli import main
from robustassay.data.corruptions import CorruptionSpec, corrupt
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation.progress import NoProgress
from robustassay.studies import analyses
from robustassay.studies.analyses.analysis import ADVERSARIAL, L2_TRAINED, NATURAL, group
from robustassay.studies.analyses.model_measurements import ModelMeasurements
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.kept_images import kept
from robustassay.studies.measures.smoothness import OUTPUT
from robustassay.studies.robustbench2021 import STUDY
from robustassay.studies.robustbench2021 import smoothness as smoothness_of
from robustassay.studies.robustbench2021.answers import findings_of
from robustassay.studies.robustbench2021.class_findings import deer, deer_under_l2, fairness
from robustassay.studies.robustbench2021.findings import CLAIMS, _ood, _shift, _transfer
from robustassay.studies.robustbench2021.further_runs import square_names
from robustassay.studies.robustbench2021.l2_models import l2_models
from robustassay.studies.robustbench2021.measurements import FIGURES, RobustBenchMeasurements
from robustassay.studies.robustbench2021.mixture import mixture
from robustassay.studies.robustbench2021.models import PAPER_MODELS
from robustassay.studies.robustbench2021.plan import _spread, analysis_kinds, choose
from robustassay.studies.robustbench2021.published_entries import CLAIMS as PUBLISHED_CLAIMS
from robustassay.studies.robustbench2021.published_entries import corruption_scores
from robustassay.studies.robustbench2021.repeated_runs import restarts, seeds
from robustassay.studies.robustbench2021.settings import FULL, QUICK, SETTINGS, RobustBenchSettings
from robustassay.studies.scope import Scope
from robustassay.studies.task import Key
from robustassay.studies.writer import write

TINY = RobustBenchSettings(
    "a tiny part of it",
    images=8,
    robust_images=6,
    models=("vgg11-natural", "convnet-ibp"),
    shifts=(CorruptionSpec("fog", 3),),
    shift_images=4,
    attacked_shift_images=4,
    ood=("noise",),
    crafting_images=4,
    lipschitz_images=2,
    lipschitz_steps=2,
    lipschitz_stages=2,
    attack="pgd:steps=1",
    l2_images=4,
    seed_models=("convnet-ibp",),
    seeds=(1,),
    seed_images=4,
    restart_images=0,
    compared_attack="express",
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
    assert "Left out, Figure 7: it needs images" in page
    for analysis in measured.analyses.values():
        for panel in analysis.panels:
            assert drawn[folder / "figures" / f"{panel.name}.png"].content is panel.content
            assert f"figures/{panel.name}.png" in page
    boards = json.loads((folder / "leaderboard" / "board.json").read_text())["boards"]
    linf = next(board for board in boards if board["norm"] == "Linf")
    own = [entry for entry in linf["entries"] if entry["kind"] == "measured"]
    assert {entry["id"] for entry in own} == set(TINY.models)
    assert all(entry["robust"]["samples"] == 6 for entry in own)
    assert sum(entry["kind"] == "published" for entry in linf["entries"]) == 99  # also those within 0.031
    assert {board["norm"] for board in boards} == {"Linf", "L2"}
    assert [one.number for one in report.findings] == list(range(1, len(PUBLISHED_CLAIMS) + len(CLAIMS) + 1))
    assert all(one.published and one.because for one in report.findings)
    assert all(one.measured for one in report.findings if one.verdict != "cannot be said")


def test_a_page_is_made_of_what_is_finished(folder, tmp_path):
    plan = STUDY.plan(Scope(folder, quick=True))
    some = {task.key: task.run({}, NoProgress()) for task in plan.tasks if task.key[1] in ("run", "predictions")}
    del some["convnet-ibp", "predictions", "shift: fog-3"]
    measured = plan.measure(some)
    assert plan.partial
    assert {"time", "calibration", "ood", "fairness", "robust-shift"} == set(measured.analyses)
    assert measured.left_out["shift"] == ("convnet-ibp",)
    text = "\n".join(STUDY.setup(measured).markdown)
    assert "Figure 3 (shift): not measured yet." in text
    assert "under L2 0.5: 2 of 2 not measured" not in text
    by_claim = {one.claim: one for one in STUDY.findings(measured)}
    assert by_claim["Robust accuracy goes with accuracy under distribution shift"].verdict == "cannot be said"


def test_what_most_rests_on_comes_first_and_long_tasks_before_short_ones(folder):
    keys = [task.key for task in STUDY.plan(Scope(folder, quick=True)).tasks]
    assert keys[:2] == [("convnet-ibp", "run", "test"), ("vgg11-natural", "run", "test")]
    kinds = [key[1:] for key in keys]
    first = [kinds.index(each) for each in (
        ("run", "test"), ("predictions", "test"), ("run", "express"), ("run", "attacked: corruptions"),
        ("lipschitz", "test"), ("transfer", "test"), ("run", "seed 1"), ("run", "l2"))]  # fmt: skip
    assert first == sorted(first)


def test_the_second_attack_is_compared_with_the_first(folder):
    _, measured, _ = run(folder)
    (said,) = (line for line in STUDY.setup(measured).markdown if "`express` ran beside" in line)
    total, equal, only, only_other = (
        int(number) for number in re.findall(r"(\d+) (?:verdicts|are equal|samples fall|to `express` only)", said)
    )
    assert total == 12 == equal + only + only_other


def test_a_part_of_a_dataset_has_its_classes():
    test = data.load("cifar10-1k")
    in_classes = test.select(test.labels.argsort().tolist())
    assert set(_spread(in_classes, 50).labels.tolist()) == set(range(10))
    assert len(_spread(in_classes, 50)) == 50
    assert _spread(test, 2000) is test


def frame(rng, confidence, images=400):
    """Answers of two classes of which four of five are correct, with confidences near a mean."""
    sure = rng.uniform(confidence - 0.05, confidence + 0.05, images)
    labels = (np.arange(images) % 5 == 0).astype(int)
    return pd.DataFrame({"label": labels, "logit0": np.log(sure / (1 - sure)), "logit1": 0.0})


@pytest.mark.parametrize(
    ("of_l2", "outside", "verdict"), [(0.8, 0.6, "holds"), (0.55, 0.5, "does not hold"), (0.8, 0.8, "does not hold")]
)
def test_models_trained_for_l2_are_compared_with_both_other_kinds(of_l2, outside, verdict):
    rng = np.random.default_rng(0)
    names = {
        NATURAL: ("Standard:Linf", "Standard:L2"),
        ADVERSARIAL: tuple("abcd"),
        L2_TRAINED: tuple(f"{name}:L2" for name in "abcd"),
    }
    answers = {NATURAL: (0.9, 0.7), ADVERSARIAL: (0.6, 0.6), L2_TRAINED: (of_l2, outside)}
    results: dict[Key, Any] = {}
    for kind, own in names.items():
        for name in own:
            for place, confidence in zip(("test", "out of distribution: x"), answers[kind], strict=True):
                results[f"robustbench:{name}", "predictions", place] = frame(rng, confidence)
    models_ = tuple(dict.fromkeys(key[0] for key in results))
    measured = ModelMeasurements(models_, dict.fromkeys(key[2] for key in results), cast(Any, None), results)  # type: ignore[arg-type]
    table = pd.DataFrame({"model": models_, "ece": 0.1, "ece_held_out": 0.1})
    made = {name: analyses.Analysis(name, name, {name: table}, (), ()) for name in ("calibration", "ood")}
    outcome = l2_models(cast(Any, SimpleNamespace(analyses=made, measured=measured)))
    assert outcome.verdict == verdict
    assert "mean AUROC natural 1.000" in str(outcome.measured)
    assert l2_models(cast(Any, SimpleNamespace(analyses={}, measured=measured))).verdict == "cannot be said"
    few = table[~table["model"].str.contains(":[cd]:L2")]  # no rank test can tell so few models apart
    made = {name: analyses.Analysis(name, name, {name: few}, (), ()) for name in ("calibration", "ood")}
    outcome = l2_models(cast(Any, SimpleNamespace(analyses=made, measured=measured)))
    assert outcome.verdict == "cannot be said"
    assert "2 and 4 models are too few" in outcome.because


def test_the_command_plans_and_refuses(capsys, tmp_path):
    assert main(["study", "robustbench2021", "--models", "no-such-model", "--out", str(tmp_path)]) == 2
    assert "no-such-model" in capsys.readouterr().err
    assert set(QUICK.models) <= set(models.names())
    assert len(QUICK.models) >= 10
    assert set(models.names()) - set(choose([], FULL)) == {"vgg16-rse"}  # whose forward pass is random
    assert "privacy" in analysis_kinds(FULL, "x")
    assert "privacy" not in analysis_kinds(FULL, None)
    with pytest.raises(BadRequest):
        choose(["nothing"], FULL)


def test_the_papers_own_models_have_names_architectures_and_groups():
    own = PAPER_MODELS["cifar10"]
    assert len(own) == 58
    assert all(one.model.startswith("robustbench:") and one.family for one in own)
    groups = [group(one.model) for one in own]
    assert [groups.count(name) for name in (NATURAL, ADVERSARIAL, L2_TRAINED)] == [1, 42, 15]
    rice = next(one for one in own if one.label == "Rice2020Overfitting")
    assert (rice.family, rice.depth) == ("WideResNet", 34)


def test_the_mixture_has_every_corruption_equally_often_and_does_not_depend_on_the_batch():
    test = data.load("cifar10-1k")
    mixed = mixture(test, 150)
    cells: Any = mixed.read.cells  # type: ignore[attr-defined]
    assert sorted(Counter(cells).values()) == [2] * 75
    x = mixed.images(slice(0, 6))
    assert torch.equal(x[3:4], mixed.images([3]))
    cell = cells[3]
    assert torch.equal(x[3:4], corrupt(test, cell).images([3]))


def test_kept_images_are_those_of_the_corruption_and_made_once():
    test = data.load("cifar10-1k").take(6)
    made = []
    spec = CorruptionSpec("gaussian-noise", 5)
    corrupted = corrupt(test, spec)

    def counted(rows):
        made.append(list(rows))
        return corrupted.read(rows)

    own = kept(replace(corrupted, read=counted))
    for rows in ([3], [0, 5], range(6)):
        assert torch.equal(own.images(rows), corrupted.images(rows))
    assert torch.equal(own.take(2).images([1]), corrupted.images([1]))
    assert made == [list(range(6))]
    own.images([0]).zero_()  # the caller may change what it gets
    assert torch.equal(own.images([0]), corrupted.images([0]))


def attacked(broken, by="apgd-ce", images=500):
    """The records of an attack that breaks the first images."""
    success = [at < broken for at in range(images)]
    rows = {"sample_id": [str(at) for at in range(images)], "clean_ok": True, "success": success}
    return pd.DataFrame({**rows, "claimed_by": [by if one else None for one in success]})


def repeated(broken, squares=None, by="apgd-ce"):
    """A study of one model with several seeds, and perhaps Square with restarts."""
    names = [("m", "run", "test"), *(("m", "run", f"seed {at}") for at in range(1, len(broken)))]
    results = {name: SimpleNamespace(records=attacked(count, by)) for name, count in zip(names, broken, strict=True)}
    if squares is not None:
        first, *others = square_names()  # the last of them breaks most
        results |= {("m", "run", name): SimpleNamespace(records=attacked(300, "square")) for name in (first, *others)}
        results["m", "run", others[-1]] = SimpleNamespace(records=attacked(squares, "square"))
    settings = replace(TINY, attack="autoattack", seed_models=("m",), seeds=(1, 2), restart_models=("m",))
    measured = SimpleNamespace(models=("m",), records=lambda model: results[model, "run", "test"].records)
    return cast(Any, SimpleNamespace(results=results, settings=settings, measured=measured))


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [((300, 302, 301), "holds"), ((300, 305, 300), "cannot be said"), ((300, 340, 300), "does not hold")],
)
def test_a_range_over_seeds_is_little_or_within_chance_or_neither(broken, verdict):
    outcome = seeds(repeated(broken))
    assert outcome.verdict == verdict
    assert f"the seed decides on {max(broken) - 300} of 500 images" in outcome.reasons[0]
    assert seeds(repeated(broken[:1])).verdict == "cannot be said"


@pytest.mark.parametrize(
    ("by", "squares", "verdict"),
    [("square", 320, "holds"), ("square", 300, "does not hold"), ("apgd-ce", 320, "cannot be said")],
)
def test_restarts_are_judged_where_square_improves_on_attacks_with_gradients(by, squares, verdict):
    outcome = restarts(repeated((300,), squares, by))
    assert outcome.verdict == verdict
    assert f"{squares - 300} of 200 images that autoattack left" in str(outcome.measured)
    assert restarts(repeated((300,))).measured is None


def study_of(name, table, more=None):
    """A finished study with one analysis."""
    made = {name: analyses.Analysis(name, name, {name: table, **(more or {})}, (), ())}
    return RobustBenchMeasurements(cast(Any, None), {}, made, (), (), TINY, {})


@pytest.mark.parametrize(("second", "verdict"), [("resnet20-natural", "cannot be said"), ("vgg11-natural", "holds")])
def test_smoothness_of_one_architecture_is_one_case(monkeypatch, second, verdict):
    kinds = {"resnet20-natural": 1, "resnet20-pgd": 1, "vgg11-natural": 2}
    kinds["resnet20-alp"] = kinds[second]
    monkeypatch.setattr(smoothness_of, "same_architecture", lambda one, two: kinds[one] == kinds[two])
    table = pd.DataFrame({"model": list(kinds)})

    def lipschitz(model):
        slopes = {"sample_id": range(20), "slope": 8.0 if group(model) == NATURAL else 1.0, "size": 1.0}
        return pd.DataFrame({**slopes, "stage": OUTPUT})

    study = study_of("smoothness", table)
    object.__setattr__(study, "measured", SimpleNamespace(lipschitz=lipschitz))
    found = smoothness_of.smoothness(study)
    assert found.verdict == verdict
    count = "1 architecture" if verdict == "cannot be said" else "2 architectures"
    assert f"8.0 to 8.0 times the local slope, 2 pairs of {count}, n = 20 images" in str(found.measured)


def test_verdicts_follow_from_the_numbers():
    trained = [name for name in models.names() if group(name) != NATURAL]
    robust = np.linspace(0.1, 0.5, len(trained))
    for sign, verdict in ((1, "holds"), (-1, "does not hold"), (0, "cannot be said")):
        table = pd.DataFrame({"model": trained, "robust": robust, "test": 0.9, "fog": sign * robust})
        assert _shift(study_of("shift", table.assign(**{"fog, share kept": 1.0}))).verdict == verdict
        spread = table.assign(robust_rsd=2 - sign * robust, robust_rsd_by_chance=0.1)
        for images, expected in ((50, verdict), (10, "cannot be said")):
            classes = {"fairness-classes": table.assign(images=images)}
            assert fairness(study_of("fairness", spread, classes)).verdict == expected

    fallen = spread.assign(robust=0.0)
    assert fairness(study_of("fairness", fallen, {"fairness-classes": fallen})).verdict == "cannot be said"

    names = [name for name in models.names() if group(name) in (NATURAL, ADVERSARIAL)]
    for low, verdict in ((ADVERSARIAL, "holds"), (NATURAL, "does not hold"), ("", "cannot be said")):
        areas = [0.6 + 0.3 * (low not in ("", group(name))) + 0.001 * at % 0.01 for at, name in enumerate(names)]
        table = pd.DataFrame({"model": names, "ood": "noise", "auroc": areas})
        assert _ood(study_of("ood", table, {"ood-all": table})).verdict == verdict

    ends = ((ADVERSARIAL, ADVERSARIAL), (NATURAL, ADVERSARIAL), (NATURAL, NATURAL), (ADVERSARIAL, NATURAL))
    cases = (((0.9, 0.9, 0.9, 0.1), "holds"), ((0.9, 0.1, 0.9, 0.1), "does not hold"),
             ((0.52, 0.9, 0.9, 0.1), "cannot be said"))  # fmt: skip
    for rates, verdict in cases:
        rows = [(*end, rate, rate, rate - 0.05, rate + 0.05) for end, rate in zip(ends, rates, strict=True)]
        kinds = pd.DataFrame(rows, columns=["from", "to", "rate", "share", "low", "high"])
        sources = pd.DataFrame({"model": ["a", "b"], "training": [NATURAL, ADVERSARIAL], "on itself": 1.0})
        assert _transfer(study_of("transfer", sources, {"transfer-groups": kinds})).verdict == verdict


@pytest.mark.parametrize(("kept", "verdict"), [(0.1, "holds"), (0.9, "does not hold"), (0.5, "cannot be said")])
def test_deer_are_compared_with_all_other_classes(kept, verdict):
    rows = [
        {"model": name, "class": label, "images": 100, "clean": 0.8, "robust": 0.8 * (kept if label == "deer" else 0.5)}
        for name in models.names() if group(name) == ADVERSARIAL for label in ("cat", "deer", "dog")
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    outcome = deer(study_of("fairness", table, {"fairness-classes": table}))
    assert outcome.verdict == verdict
    assert f"({80 * kept:.0f} of 80 images)" in outcome.reasons[0]


def test_deer_are_counted_under_l2_on_models_trained_for_it():
    columns = {"label": [4] * 4 + [0] * 6, "clean_ok": [True] * 9 + [False], "success": [True] * 3 + [False] * 7}
    rows = pd.DataFrame(columns)
    results = {(name, "run", "l2"): SimpleNamespace(records=rows) for name in ("resnet20-pgd-l2", "resnet20-pgd")}
    setup = SimpleNamespace(datasets={"test": data.load("cifar10-1k")})
    (said,) = deer_under_l2(cast(Any, SimpleNamespace(results=results, setup=setup)))
    assert said.startswith("resnet20-pgd-l2 under")
    assert "25% (1 of 4 images)" in said
    assert said.endswith("all others 100% (5 of 5 images).")


def test_statements_about_published_entries_have_their_numbers():
    found = {one.claim: one for one in findings_of(PUBLISHED_CLAIMS, None)}
    first = found["For several published defenses the reported robust accuracy is highly overestimated"]
    assert "10 of 67 entries" in (first.measured or "")
    assert "52.4 → 18.5 %" in (first.measured or "")  # the numbers that the paper prints
    scores = corruption_scores().set_index("model")["trained_against"]
    assert scores["Gowal2020Uncovering_70_16_L2"] == "L2"
    assert scores["Addepalli2021Towards_WRN34"] == "Linf"
    assert scores["Standard"] == "nothing"
