"""Dong et al.: the declared runs, resuming, and tables and findings that follow from records."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustassay import data, threat
from robustassay.analysis.curves import Curve
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation import Result, evaluate, inspection, prepare, wave
from robustassay.evaluation import wave_runner as evaluation
from robustassay.evaluation.progress import NoProgress
from robustassay.models.from_file import load_from_file
from robustassay.models.sources import Loaded, robustbench
from robustassay.records import SCHEMA
from robustassay.studies import runs, timing
from robustassay.studies.dong2020 import STUDY, defenses, published, settings
from robustassay.studies.dong2020.attacks import ATTACKS, NORMS
from robustassay.studies.dong2020.crossings import crossings
from robustassay.studies.dong2020.defenses import BenchmarkDefense
from robustassay.studies.dong2020.measurements import DongMeasurements, run_key
from robustassay.studies.dong2020.plan import STAGES, attack_runs
from robustassay.studies.dong2020.settings import FULL, FULL_ON_CPU, ON_CPU, ON_GPU, QUICK, SETTINGS
from robustassay.studies.paper_models import find, resolve
from robustassay.studies.provenance import Measured
from robustassay.studies.runs import AttackRun, RunTask, Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.timing import Passes, PassTimes
from robustassay.studies.writer import write
from robustassay.threat import LInf, ThreatModel

LINF, L2 = NORMS

MODELS = """
import torch
from torch import nn

def make(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10)).eval()

def one():
    return make(1)

def two():
    return make(2)
"""

TINY = dataclasses.replace(
    QUICK,
    queries=40,
    samples=10,
    images=6,
    query_images=3,
    without=frozenset({"transfer", "white-box L2", "score L2", "score eps", "decision"}),
)


@pytest.fixture
def models(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return [BenchmarkDefense(name, f"{path}:{name}") for name in ("one", "two")]


@pytest.fixture
def waves(monkeypatch):
    """Count the waves that are run."""
    seen = []
    whole = wave.run_wave

    def counted(network, attack, threat, wave, *rest):
        seen.append((type(attack).__name__, list(wave.ids)))
        return whole(network, attack, threat, wave, *rest)

    monkeypatch.setattr(evaluation, "run_wave", counted)
    return seen


def planned(models, out, images=6):
    return plan_of(attack_runs(models, TINY), data.load("cifar10-1k").take(images), out)


def plan_of(some, dataset, out):
    return Plan(Workspace(dataset, out).tasks(some), dict)


def test_a_resumed_or_extended_study_runs_nothing_twice(models, waves, tmp_path):
    whole = planned(models[:1], tmp_path / "out")
    assert whole.seconds() > 0
    first = whole.run(NoProgress())
    assert len(waves) == len(whole.tasks) == 10
    assert whole.seconds() == 0

    before = len(waves)
    again = planned(models[:1], tmp_path / "out").run(NoProgress())
    assert len(waves) == before
    for key, result in first.items():
        pd.testing.assert_frame_equal(again[key].records, result.records)

    planned(models, tmp_path / "out").run(NoProgress())  # one more model
    assert len(waves) == 2 * before

    planned(models, tmp_path / "out", images=8).run(NoProgress())  # more images: only the new ones
    assert {len(ids) for _, ids in waves[2 * before :]} == {2}
    assert len(waves) == 2 * before + 2 * 7  # the score attacks keep their three images


def test_an_interrupted_study_goes_on_where_it_was(models, waves, tmp_path, monkeypatch):
    undisturbed = planned(models, tmp_path / "undisturbed").run(NoProgress())
    plan, count = planned(models, tmp_path / "out"), len(waves)

    counted = vars(evaluation)["run_wave"]

    def stop_at_fourth(*arguments):
        if len(waves) == count + 4:
            raise Interrupted("Stopped.")
        return counted(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "run_wave", stop_at_fourth)
        with pytest.raises(Interrupted):
            plan.run(NoProgress())
    assert len(waves) == count + 4
    resumed = planned(models, tmp_path / "out").run(NoProgress())
    assert len(waves) == 2 * count  # the four were not repeated
    for key, result in undisturbed.items():
        same = result.records.drop(columns="seconds")
        pd.testing.assert_frame_equal(resumed[key].records.drop(columns="seconds"), same)


def test_other_settings_go_to_other_folders_and_finished_runs_of_another_model_are_refused(models, tmp_path):
    first = attack_runs(models[:1], TINY)[0]
    assert first.folder(0) != first.folder(1) != dataclasses.replace(first, query_budget=7).folder(1)
    whole = plan_of((first,), data.load("cifar10-1k").take(6), tmp_path / "out")
    whole.run(NoProgress())
    path = Path(models[0].model.rpartition(":")[0])
    path.write_text(MODELS.replace("make(1)", "make(3)"))  # the same name, other weights
    timing.load_once.cache_clear()
    with pytest.raises(BadRequest, match="another"):
        whole.run(NoProgress())


def test_the_estimate_is_planned_passes_times_their_measured_time(models, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "pass_times", lambda model, dataset, device, eot: PassTimes(2.0, 5.0))
    threat = ThreatModel(LInf(8 / 255))
    declared = (
        AttackRun(("a", "b"), models[0].model, threat, "bim", Passes(gradients=10)),
        AttackRun(("a", "c"), models[0].model, threat, "nes", Passes(forwards=100), limit=2),
        AttackRun(("a", "d"), models[0].model, threat, "mim", Passes(source_gradients=7), source="resnet20-pgd"),
    )
    whole = plan_of(declared, data.load("cifar10-1k").take(3), tmp_path)
    preflight = 100 * 2 + 50 * 5
    assert whole.seconds() == 3 * 10 * 5 + 2 * 100 * 2 + 3 * 7 * 5 + 2 * preflight  # one per number of samples


def test_a_model_is_looked_at_once_before_all_its_runs(models, monkeypatch, tmp_path):
    looks, really = [], inspection.inspect_model

    def look(module, *rest):
        looks.append(module)
        return really(module, *rest)

    monkeypatch.setattr(prepare, "inspect_model", look)
    timing.load_once.cache_clear()
    threat = ThreatModel(LInf(8 / 255))
    cells = [
        AttackRun((name,), models[0].model, threat, name, Passes()) for name in ("fgsm", "bim:steps=2", "uniform-noise")
    ]
    whole = plan_of(cells, data.load("cifar10-1k").take(3), tmp_path)
    together = [result.records for result in whole.run(NoProgress()).values()]
    assert len(looks) == 1
    for cell, records in zip(cells, together, strict=True):
        alone = evaluate(models[0].model, data.load("cifar10-1k").take(3), threat, cell.attack).records
        pd.testing.assert_frame_equal(records.drop(columns="seconds"), alone.drop(columns="seconds"))


def test_the_full_study_is_the_papers():
    rows_here = [row for row in defenses.DEFENSES if row.label in ("Res-56", "PGD-AT", "JPEG")]
    full = attack_runs(rows_here, FULL)
    untargeted = {cell.key[2] for cell in full if "targeted" not in cell.key[1]}
    assert len(ATTACKS) == len(untargeted) == 15
    assert {cell.key[2] for cell in full if "targeted" in cell.key[1]} == untargeted - {"white-box-DeepFool"}
    assert len({cell.folder(0) for cell in full}) == len({cell.key for cell in full}) == len(full)
    spelled = {cell.key[1:]: cell for cell in full if cell.key[0] == "PGD-AT"}
    bim = spelled["Linf", "white-box-BIM", "fixed"]
    assert bim.attack == "bim:steps=100,rel_step=0.125"
    assert float(bim.attack.rpartition("=")[2]) * bim.threat.norm.eps == pytest.approx(1 / 255)
    assert spelled["Linf", "score-NES", "fixed"].attack == "nes:steps=40,samples=500,rel_step=0.125"
    assert spelled["Linf", "score-NES", "fixed"].query_budget == 20_000
    assert spelled["L2", "decision-Boundary", "both"].threat.norm.eps == 1.0
    assert not spelled["Linf", "white-box-BIM", "fixed"].smallest_eps
    assert spelled["Linf", "white-box-BIM", "eps"].smallest_eps


def test_every_attack_of_every_scope_can_be_made():
    from robustassay import attacks

    for scale in (FULL, FULL_ON_CPU, QUICK):
        for cell in attack_runs([defenses.DEFENSES[0]], scale):
            made = attacks.create(cell.attack)
            assert type(cell.threat.norm) in made.norms
            assert made.seeks_minimum == (cell.key[-1] == "both")
            assert made.can_target or cell.threat.target is None


def test_a_cpu_measures_a_part_of_every_group():
    for scope, chosen in ON_CPU.items():
        runs = attack_runs(defenses.DEFENSES[:1], chosen)
        assert {run.key[2].partition("-")[0] for run in runs} == {"white", "transfer", "score", "decision"}, scope
        assert all(
            run.key[1:] in {run.key[1:] for run in attack_runs(defenses.DEFENSES[:1], SETTINGS[scope])} for run in runs
        )
        assert chosen.left_out


def test_runs_of_one_attack_stand_together_and_the_main_text_comes_first():
    rows = defenses.DEFENSES
    for scope, chosen in ON_GPU.items():
        names = [run.key[1:] for run in attack_runs(rows, chosen)]
        blocks = [name for at, name in enumerate(names) if at == 0 or name != names[at - 1]]
        assert len(blocks) == len(set(blocks)), scope
        first = [(attack, kind) for _, attack, kind in blocks]
        assert {attack.partition("-")[0] for attack, _ in first[: first.index(("score-NES", "fixed"))]} == {
            "white",
            "transfer",
        }
        assert first.index(("decision-Evolutionary", "both")) < first.index(("transfer-BIM", "eps"))
        full = {run.key for run in attack_runs(rows, SETTINGS[scope])}
        assert {run.key for run in attack_runs(rows, chosen)} < full
        assert chosen.left_out
    assert len({pattern for stage in STAGES for pattern in stage}) == sum(map(len, STAGES))


def budgets(scope):
    """Return the query budgets of all planned runs."""
    return {task.attack_run.query_budget for task in STUDY.plan(scope).tasks if isinstance(task, RunTask)}


def test_a_folder_of_a_gpu_keeps_its_settings_on_a_cpu(models, tmp_path, monkeypatch):
    monkeypatch.setitem(ON_GPU, "full", dataclasses.replace(TINY, queries=30))
    monkeypatch.setitem(ON_CPU, "full", TINY)
    scope = Scope(tmp_path, limit=1, models=(models[0].model,), device="cpu")
    assert budgets(scope) == {None, 40}
    Measured("2026-11-19", "0", 6, "CPU").keep(tmp_path)
    assert budgets(scope) == {None, 40}
    Measured("2026-11-19", "0", 6, "NVIDIA H200").keep(tmp_path)
    assert budgets(scope) == {None, 30}


def test_each_group_of_runs_has_its_number_of_images():
    rows = [row for row in defenses.DEFENSES if row.label in ("Res-56", "RSE")]
    chosen = dataclasses.replace(
        FULL, query_images=50, search_images=25, white_box_search_images=40, random_images=30, cw_images=20,
        without=frozenset({"white-box BIM eps random", "white-box MIM eps"}),
    )  # fmt: skip
    limits = {run.key: run.limit for run in attack_runs(rows, chosen)}
    assert limits["Res-56", "Linf", "white-box-BIM", "fixed"] is None
    assert limits["Res-56", "Linf", "white-box-BIM", "eps"] == 40
    assert limits["RSE", "Linf", "white-box-BIM", "fixed"] == limits["RSE", "Linf", "white-box-FGSM", "eps"] == 30
    assert limits["RSE", "Linf", "transfer-BIM", "fixed"] is limits["RSE", "Linf", "transfer-BIM", "eps"] is None
    assert limits["RSE", "Linf", "score-NES", "fixed"] == 50
    assert limits["RSE", "Linf", "score-NES", "eps"] == limits["Res-56", "Linf", "score-NES", "eps"] == 25
    assert limits["RSE", "L2", "white-box-C&W", "both"] == 20
    assert limits["Res-56", "L2", "white-box-C&W", "both"] == 20
    assert ("RSE", "Linf", "white-box-BIM", "eps") not in limits
    assert not any(attack == "white-box-MIM" and kind == "eps" for _, _, attack, kind in limits)
    assert ("Res-56", "L2", "white-box-MIM", "fixed") in limits


def test_quick_is_a_part_of_the_full_study():
    quick = attack_runs([defenses.DEFENSES[0]], QUICK)
    full = {cell.key for cell in attack_runs([defenses.DEFENSES[0]], FULL)}
    assert {cell.key for cell in quick} < full
    assert all(cell.threat.target is None for cell in quick)


def test_an_attack_counts_only_where_every_row_has_a_finished_run(models, tmp_path, monkeypatch):
    monkeypatch.setitem(ON_CPU, "full", dataclasses.replace(TINY, without=TINY.without | {"MIM", "BIM", "DeepFool"}))
    rows = tuple(f"{row.label}={row.model}" for row in models)
    plan = STUDY.plan(Scope(tmp_path, limit=2, models=rows, device="cpu"))
    results: dict[Any, Any] = {}
    for task in plan.tasks:
        if task.key != ("two", "Linf", "score-NES", "fixed"):
            results[task.key] = task.run(results, NoProgress())
    assert len(results) == len(plan.tasks) - 1 == 9
    measured = plan.measure(results)
    assert set(measured.unfinished) == {(row, "Linf", "score-NES", "fixed") for row in ("one", "two")}
    assert "2 of 10 runs are missing, as the time for them ended before every row had one: score NES (L∞)." in (
        STUDY.setup(measured).deviations
    )
    shown = next(table for table in STUDY.tables(measured) if table.name == "table3").frame
    assert set(shown["attack"]) == {"FGSM", "SPSA", "NAttack"}


def test_an_attack_is_shown_without_a_random_or_added_row_whose_run_is_missing():
    names = ("Res-56", "PGD-AT", "RSE", "more=resnet20-pgd")
    rows = defenses.choose(names)[0]
    kept = {(row.label, "score", "NES", LINF, "fixed"): ("nes", NEAR) for row in rows[:2]}
    whole = measurements(kept)
    plan = STUDY.plan(Scope(Path("none"), models=names, device="cpu"))
    found = plan.measure(whole.results)
    assert set(found.results) == set(whole.results)
    text = next(line for line in STUDY.setup(found).deviations if "runs are missing" in line)
    assert text.endswith("of RSE and more alone, score NES (L∞).")
    one = {key: result for key, result in whole.results.items() if key[0] == "Res-56"}
    assert not plan.measure(one).results, "PGD-AT is compared with it"


def test_missing_models_are_named_and_substitutes_stand_in(monkeypatch):
    zoo = {"resnet56-natural", "resnet20x2-pgd", "resnet20-pgd"}
    monkeypatch.setattr(defenses, "is_available", lambda model: model.rpartition("|")[2] in zoo)
    here, missing = defenses.choose(None)
    assert [row.label for row in here] == ["Res-56", "PGD-AT", "JPEG"]
    assert "TRADES" in [row.label for row in missing]
    assert defenses.substitute_for("resnet56-natural") == "resnet20x2-pgd"
    assert defenses.substitute_for("resnet20x2-pgd") == "resnet20-pgd"
    zoo.add("resnet20x3-trades")
    assert defenses.substitute_for("jpeg:quality=75|resnet56-natural") == "resnet20x3-trades"
    assert defenses.substitute_for("resnet20x2-pgd") == "resnet20x3-trades"
    assert defenses.substitute_for("resnet20x3-trades") == "resnet20x2-pgd"
    assert [row.label for row in defenses.choose(["pgd-at", "resnet20-pgd"])[0]] == ["PGD-AT", "resnet20-pgd"]
    with pytest.raises(BadRequest, match="no row or model"):
        defenses.choose(["nonsense"])


def result(attack, norm, distances, fixed, clean=None):
    """Records as a run would leave them, from the distance at which each sample falls; infinite where it stands."""
    far = np.asarray(distances, float)
    n, found = len(far), np.isfinite(far)
    within = far <= norm.eps
    columns_known = {
        "sample_id": [f"{row}" for row in range(n)],
        "label": 0,
        "clean_ok": np.ones(n, bool) if clean is None else np.asarray(clean, bool),
        "claimed": within if fixed else found,
        "valid": [True if claim else None for claim in (within if fixed else found)],
        "success": within,
        "distance": np.where(found, far, np.nan),
        "iterations": 10,
        "queries": 10,
        "claimed_at_iteration": [5 if claim else None for claim in found],
        "improvements": [[] for _ in range(n)],
    }
    records = pd.DataFrame({name: columns_known.get(name) for name in SCHEMA.names}, index=range(n))
    for name in ("clean_ok", "claimed", "valid", "success"):
        records[name] = records[name].astype("boolean")
    spec = {"threat": {"eps": norm.eps, "norm": norm.name}, "attack": {"name": attack}}
    return Result({"spec": spec, "title": attack}, records, None)


def measurements(runs, missing=()):
    """Measurements from {(row, group, name, norm, kind): (attack, distances)}."""
    by_name = {(attack.group, attack.name): attack for attack in ATTACKS}
    labels = list(dict.fromkeys(row for row, *_ in runs))
    held = {
        run_key(row, by_name[group, name], norm, False, kind): result(attack, norm, far, kind == "fixed", *clean)
        for (row, group, name, norm, kind), (attack, far, *clean) in runs.items()
    }
    known = {row.label: row for row in defenses.DEFENSES}
    rows = tuple(known.get(label, BenchmarkDefense(label, label)) for label in labels)
    return DongMeasurements(rows, tuple(missing), held)


def test_the_scale_names_the_rows_that_have_fewer_images():
    kept = {
        (row, "white-box", "BIM", LINF, "fixed"): ("bim", [0.1] * images)
        for row, images in (("Res-56", 30), ("PGD-AT", 30), ("RSE", 10))
    }
    searched = {("Res-56", "white-box", "BIM", LINF, "eps"): ("minimum-radius", [0.1] * 20)}
    shown = {line.what: line.here for line in STUDY.setup(measurements(kept | searched)).scale}
    assert shown["images, white-box attacks"] == "30 (RSE: 10)"
    assert shown["images, searches of the smallest eps by white-box attacks"] == "20"
    table = next(table for table in STUDY.tables(measurements(kept | searched)) if table.name == "table3")
    assert table.notes[0].startswith("n = 10 or 30 images, medians of 20. ")


def test_the_page_names_other_devices_half_precision_and_why_random_rows_have_fewer_images():
    measured = measurements(
        {
            ("Res-56", "white-box", "FGSM", LINF, "fixed"): ("fgsm", NEAR),
            ("PGD-AT", "white-box", "FGSM", LINF, "fixed"): ("fgsm", NEAR),
            ("RSE", "white-box", "FGSM", LINF, "fixed"): ("fgsm", [0.1] * 10),
        }
    )
    text = " ".join(STUDY.setup(measured).deviations)
    assert "RSE meets fewer images than other rows, for the time: a gradient takes 20 passes there" in text
    assert "float16" not in text
    assert "Computed on" not in text
    first, second, third = measured.results.values()
    first.manifest["spec"]["model"] = {"search": "float16 by autocast"}
    first.manifest["hardware"] = second.manifest["hardware"] = {"device": "NVIDIA H200"}
    third.manifest["hardware"] = {"device": "cpu"}
    text = " ".join(STUDY.setup(measured).deviations)
    assert "1 of 3 runs searched on a copy of the model in float16" in text
    assert f"FGSM breaks up to {N} of {N} images more than by its one step (Res-56, L∞)." in text
    assert "Computed on a CPU, all others on NVIDIA H200: all runs of RSE." in text
    assert not any("fewer" in line for line in STUDY.setup(measurements({NES: ("nes", NEAR)})).deviations)


def test_table_3_shows_median_and_accuracy():
    far = [0.0, 0.01, 0.02, 0.05, 0.06]
    measured = measurements(
        {
            ("Res-56", "white-box", "BIM", LINF, "eps"): ("minimum-radius", far),
            ("Res-56", "white-box", "BIM", LINF, "fixed"): ("bim", far),
            ("Res-56", "white-box", "DeepFool", LINF, "both"): ("deepfool", [np.inf] * 4 + [0.001]),
            ("Res-56", "score", "NES", LINF, "fixed"): ("nes", [np.inf] * 5),
        }
    )
    table = next(table for table in STUDY.tables(measured) if table.name == "table3")
    assert table.lines == (
        ("white-box", "BIM", "0.020 / 40.0%"),
        ("", "BIM, the paper", "0.002 / 0.0%"),
        ("white-box", "DeepFool", "∞ / 80.0%"),
        ("", "DeepFool, the paper", "0.003 / 0.0%"),
        ("score", "NES", "– / 100.0%"),
        ("", "NES, the paper", "0.004 / 0.0%"),
    )
    assert table.frame["published_median_distance"].tolist() == [0.002, 0.003, 0.004]
    assert table.frame["accuracy"].tolist() == [0.4, 0.8, 1.0]
    assert dataclasses.replace(table, lines=(("jpeg|net",),), notes=()).markdown.endswith("| jpeg\\|net |\n")


def test_cells_to_recompute_have_their_command_and_count():
    measured = measurements(
        {
            ("PGD-AT", "white-box", "BIM", LINF, "fixed"): ("bim", [0.01] * 2 + [np.inf] * 6),
            ("TRADES", "transfer", "MIM", LINF, "fixed"): ("transfer", [np.inf] * 8),
        }
    )
    found = next(table for table in STUDY.tables(measured) if table.name == "spot-checks").frame
    assert found["count"].tolist() == ["6 of 8", "8 of 8"]
    assert found["clean"].tolist() == ["8 of 8", "8 of 8"]
    assert found["command"].tolist() == [
        'assay eval "resnet20x2-pgd" --attack "bim:steps=100,rel_step=0.125" --eps 8/255 --limit 8 --eot 20 '
        "--self-test 0",
        'assay eval "resnet20x3-trades" --attack "transfer:source=resnet20x2-pgd,attack=mim(steps=10,path=1.5)" '
        "--eps 8/255 --limit 8 --eot 20 --self-test 0",
    ]


def verdicts(measured):
    return [finding.verdict for finding in STUDY.findings(measured)]


N = 60
NES = ("RSE", "score", "NES", LINF, "fixed")
NEAR, FAR, STANDS = [0.001] * N, [0.1] * N, [np.inf] * N


def test_nothing_can_be_said_of_nothing():
    assert set(verdicts(measurements({("Res-56", "white-box", "BIM", LINF, "eps"): ("minimum-radius", NEAR)}))) == {
        "cannot be said"
    }


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ([0.001] * (N // 2) + [0.3] * (N // 2), [0.02] * N, "holds"),  # behind at 2/255, ahead at 8/255
        (NEAR, FAR, "does not hold"),
        ([0.001] * 2 + [0.3] * 2 + [0.02] * (N - 4), [0.02] * N, "cannot be said"),  # they cross, by two samples
    ],
)
def test_first_finding(one, two, said):
    measured = measurements(
        {
            ("Res-56", "white-box", "BIM", LINF, "eps"): ("minimum-radius", one),
            ("PGD-AT", "white-box", "BIM", LINF, "eps"): ("minimum-radius", two),
        }
    )
    assert verdicts(measured)[0] == said


def test_crossings_of_the_papers_rows_come_first_and_are_counted():
    crossing, flat = [0.001] * (N // 2) + [0.3] * (N // 2), [0.02] * N
    rows = {"Res-56": crossing, "one": crossing, "PGD-AT": flat}  # `one` is no row of the paper
    kept = {(row, "white-box", "BIM", LINF, "eps"): ("minimum-radius", far) for row, far in rows.items()}
    found = crossings(measurements(kept))
    assert found is not None
    assert found.of_paper == 1
    assert ["one" in sentence.split() for sentence in found.sure] == [False, True]
    assert "2 of 3 pairs of curves cross significantly in both directions (n = 60), 1 of them between two rows" in (
        STUDY.findings(measurements(kept))[0].measured or ""
    )
    added = {key: run for key, run in kept.items() if key[0] != "Res-56"}
    said = STUDY.findings(measurements(added))[0]
    assert (said.verdict, said.because.rpartition(", ")[2]) == ("holds", "but for no two rows of the paper")


@pytest.mark.parametrize(
    ("natural", "trained", "mistakes", "said"),
    [
        (NEAR, STANDS, 10, "holds"),
        (NEAR, STANDS, 0, "cannot be said"),  # it costs nothing
        (STANDS, NEAR, 10, "does not hold"),
        (NEAR, NEAR, 10, "cannot be said"),
    ],
)
def test_second_finding(natural, trained, mistakes, said):
    runs: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    right = [False] * mistakes + [True] * (N - mistakes)
    for norm in NORMS:
        runs["Res-56", "white-box", "BIM", norm, "fixed"] = ("bim", natural)
        runs["PGD-AT", "white-box", "BIM", norm, "fixed"] = ("bim", trained, right)
    assert verdicts(measurements(runs))[1] == said
    one_norm = {key: run for key, run in runs.items() if key[3] is LINF}
    assert verdicts(measurements(one_norm))[1] == "cannot be said"


@pytest.mark.parametrize(("others", "random", "said"), [(NEAR, STANDS, "holds"), (STANDS, NEAR, "does not hold")])
def test_third_finding(others, random, said):
    score = {
        ("Res-56", "score", "NES", LINF, "fixed"): ("nes", others),
        ("RSE", "score", "NES", LINF, "fixed"): ("nes", random),
    }
    decision = {
        ("Res-56", "decision", "Evolutionary", L2, "both"): ("evolutionary", others),
        ("RSE", "decision", "Evolutionary", L2, "both"): ("evolutionary", random),
    }
    assert verdicts(measurements(score | decision))[2] == said
    for one, other in ((score, "decision"), (decision, "score")):  # half of it cannot be asked
        found = STUDY.findings(measurements(one))[2]
        assert found.verdict == "cannot be said"
        assert found.because.endswith(f"; no {other}-based attack was run")


def test_third_finding_compares_and_prints_the_same_images():
    """Of 60 images the random row has the first 20, of which the other row loses none."""
    found = STUDY.findings(
        measurements(
            {
                ("TRADES", "score", "NES", LINF, "fixed"): ("nes", [np.inf] * 20 + [0.001] * 40),
                ("RSE", "score", "NES", LINF, "fixed"): ("nes", [np.inf] * 20),
            }
        )
    )[2]
    assert (found.measured or "").endswith("TRADES 100.0%; n = 20")


def test_third_finding_does_not_rest_on_claims_that_did_not_verify():
    runs = {
        ("Res-56", "score", "NES", LINF, "fixed"): ("nes", NEAR),
        ("RSE", "score", "NES", LINF, "fixed"): ("nes", STANDS),
        ("Res-56", "decision", "Evolutionary", L2, "both"): ("evolutionary", NEAR),
        ("RSE", "decision", "Evolutionary", L2, "both"): ("evolutionary", STANDS),
    }
    measured = measurements(runs)
    for key, found in measured.results.items():
        if key[0] == "RSE":
            found.records["claimed"], found.records["valid"] = True, False
    found = STUDY.findings(measured)[2]
    assert found.verdict == "cannot be said"
    assert found.because.endswith("with claims that did not verify counted as broken, the verdict is another one")
    assert found.reasons[-1].startswith(f"{2 * N} of {2 * N} samples of randomized rows, over all comparisons, count")


def test_transformations_are_counted_by_row():
    runs = {
        (row, "white-box", "BIM", LINF, "eps"): ("minimum-radius", far)
        for row, far in (("Res-56", NEAR), ("JPEG", [0.002] * N), ("Bit-Red", NEAR))
    }
    measured = measurements(runs)
    rows = tuple(dataclasses.replace(row, role="transformation") if row.label == "Bit-Red" else row
                 for row in measured.defenses)  # fmt: skip
    found = STUDY.findings(dataclasses.replace(measured, defenses=rows))[3]
    assert "1 of 2 comparisons (JPEG 1 of 1, Bit-Red 0 of 1)" in (found.measured or "")


@pytest.mark.parametrize(("trades", "seen"), [([0.1] * N, True), (STANDS, False)])
def test_first_finding_says_whether_the_papers_example_is_seen(trades, seen):
    found = STUDY.findings(
        measurements(
            {
                ("TRADES", "white-box", "BIM", LINF, "eps"): ("minimum-radius", trades),
                ("PGD-AT", "white-box", "BIM", LINF, "eps"): ("minimum-radius", [0.01] * 40 + [np.inf] * 20),
                ("Res-56", "white-box", "BIM", LINF, "eps"): ("minimum-radius", [0.02] * 50 + [np.inf] * 10),
            }
        )
    )[0]
    assert found.verdict == "holds"
    assert found.because.endswith("; the paper's own example is not seen here") is not seen


@pytest.mark.parametrize(
    ("plain", "jpeg", "by_query", "said"),
    [
        (NEAR, [0.002] * N, STANDS, "holds"),
        (NEAR, [0.002] * N, NEAR, "does not hold"),  # no gain against queries
        ([0.002] * N, NEAR, STANDS, "does not hold"),
        (NEAR, NEAR, STANDS, "cannot be said"),
    ],
)
def test_fourth_finding(plain, jpeg, by_query, said):
    runs = {
        ("Res-56", "white-box", "BIM", LINF, "eps"): ("minimum-radius", plain),
        ("JPEG", "white-box", "BIM", LINF, "eps"): ("minimum-radius", jpeg),
        ("Res-56", "score", "NES", LINF, "fixed"): ("nes", NEAR),
        ("JPEG", "score", "NES", LINF, "fixed"): ("nes", by_query),
    }
    decision = {
        (row, "decision", "Evolutionary", L2, "both"): ("evolutionary", far)
        for row, far in (("Res-56", NEAR), ("JPEG", by_query))
    }
    assert verdicts(measurements(runs | decision))[3] == said
    found = STUDY.findings(measurements(runs))[3]
    assert found.verdict == ("cannot be said" if by_query is NEAR else said), "another attack could show a gain"
    assert found.because.endswith("; no decision-based attack was run")
    alone = {key: run for key, run in runs.items() if key[1] == "white-box"}
    assert verdicts(measurements(alone))[3] in ("cannot be said", "does not hold")  # half of it cannot be asked


def test_findings_print_the_papers_numbers_and_ours_with_interval_and_n():
    runs: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for norm in NORMS:
        runs["Res-56", "white-box", "BIM", norm, "fixed"] = ("bim", NEAR)
        runs["PGD-AT", "white-box", "BIM", norm, "fixed"] = ("bim", STANDS, [False] * 10 + [True] * (N - 10))
    found = STUDY.findings(measurements(runs))
    assert all(one.published and one.because for one in found)
    assert "PGD-AT 48.3%" in (found[1].published or "")
    assert (
        f"L∞, worst case of BIM: PGD-AT 83.3% (72.0% to 90.7%), best other (Res-56) 0.0% (0.0% to 6.0%), n = {N}"
        in (found[1].measured or "")
    )
    assert "PGD-AT −16.7 points clean" in (found[1].measured or "")
    assert published.TABLE3["score", "NAttack", "ADP"] == (0.005, 0.024)


@pytest.mark.parametrize(
    ("samples", "mim", "said"),
    [
        (600, [np.inf] * 600, "holds"),
        (30, [np.inf] * 30, "cannot be said"),  # alike, and too few to know
        (60, [0.001] * 30 + [np.inf] * 30, "does not hold"),
    ],
)
def test_fifth_finding(samples, mim, said):
    measured = measurements(
        {
            ("Res-56", "transfer", "BIM", LINF, "fixed"): ("transfer", [np.inf] * samples),
            ("Res-56", "transfer", "MIM", LINF, "fixed"): ("transfer", mim),
        }
    )
    assert verdicts(measured)[4] == said


def test_on_photographs_l2_is_normalised_and_no_finding_names_the_other_dataset():
    unit = 100.0
    row = BenchmarkDefense("Natural", "net", "natural training", role="natural")
    norm = settings.IMAGENET_NORMS[1]
    own, boundary = threat.L2(norm.eps * unit), next(attack for attack in ATTACKS if attack.name == "Boundary")
    held = {run_key("Natural", boundary, norm, False, "both"): result("boundary", own, [0.02 * unit] * N, False)}
    measured = DongMeasurements((row,), (), held, settings.IMAGENET, True, {"Natural": unit})
    curve = measured.over_eps("Natural", boundary, norm)
    assert curve is not None
    assert curve.median == pytest.approx(0.02)
    table = next(table for table in STUDY.tables(measured) if table.name == "table3-l2")
    assert "normalised L2" in table.title
    (cell,) = next(table for table in STUDY.tables(measured) if table.name == "spot-checks").frame.to_dict("records")
    assert cell["count"] == f"0 of {N}"
    assert cell["command"].startswith('assay eval "net" --data DATA --attack "boundary:')
    assert f" --norm L2 --eps {own.eps!r} " in cell["command"]
    assert [figure.name for figure in STUDY.figures(measured)][:2] == ["figure10", "figure12"]
    setup = STUDY.setup(measured)
    text = " ".join(
        [*setup.markdown, *(f"{one.claim} {one.published} {one.because}" for one in STUDY.findings(measured))]
    )
    assert "CIFAR" not in text
    assert "RSE" not in text


@pytest.mark.parametrize(("distance", "wanted"), [(0.0002, ["symlog"]), (0.02, [])])
def test_curves_close_to_the_start_of_the_axis_are_stretched(distance, wanted, tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    from robustassay.report.charts import defense_panels

    scales = []
    monkeypatch.setattr(Axes, "set_xscale", lambda axes, name, **_: scales.append(name))
    runs = {(row, "white-box", "BIM", LINF, "eps"): ("minimum-radius", [distance] * N) for row in ("Res-56", "PGD-AT")}
    (figure,) = (one for one in STUDY.figures(measurements(runs)) if one.name == "figure1")
    defense_panels.draw(figure.content, tmp_path / "figure.png")
    assert scales == wanted


def test_transfer_attacks_have_a_curve_over_the_steps_on_the_substitute():
    runs: dict[tuple[Any, ...], tuple[Any, ...]] = {
        ("Res-56", "transfer", "BIM", LINF, f"steps-{n}"): ("transfer", [0.01] * n + [np.inf] * (N - n))
        for n in (1, 10, 50)
    }
    measured = measurements(runs)
    bim = next(attack for attack in ATTACKS if attack.slug == "transfer-BIM")
    assert {n: rate.count for n, rate in measured.over_steps("Res-56", bim, LINF).items()} == {
        1: N - 1,
        10: N - 10,
        50: 10,
    }
    assert [figure.name for figure in STUDY.figures(measured)] == [
        "transfer-linf-untargeted-strength",
        "transfer-linf-untargeted-success-strength",
    ]
    cells = {cell.key[1:]: cell.attack for cell in attack_runs(defenses.DEFENSES[:1], FULL)}
    assert cells["Linf", "transfer-BIM", "steps-100"].endswith("attack=bim(steps=100,rel_step=0.125)")
    assert cells["L2", "transfer-DIM", "steps-20"].endswith("attack=dim(steps=20,path=3.0)")


def test_a_row_takes_another_model_and_paper_means_the_hubs(monkeypatch, tmp_path):
    row = defenses.choose(["convex=mine.py:make"])[0][0]
    assert (row.label, row.model, row.published, row.note) == ("Convex", "mine.py:make", 0.663, "")
    assert defenses.choose(["Mine=mine.py:make"])[0][0].label == "Mine"
    scope, left_out = resolve(STUDY.paper_models, Scope(tmp_path, "imagenet", models=("paper",)))
    rows = defenses.choose(scope.models, defenses.defended_by_input("net"))[0]
    assert {row.label: row.role for row in rows} == {
        "Inc-v3": "natural", "Ens-AT": "other", "FD": "adversarial", "JPEG, Inc-v3": "transformation",
        "Bit-Red, Inc-v3": "transformation", "R&P, Inc-v3": "randomized", "RandMix, Inc-v3": "randomized",
    }  # fmt: skip
    assert left_out[0].startswith("Left out: ALP; no hub has it")
    assert defenses.substitute_for(rows[0].model, photographs=True) == "torchvision:resnet152"
    assert all(find(STUDY.paper_models, row.model) for row in rows)


def test_the_papers_networks_run_from_their_hubs(models, monkeypatch, tmp_path):
    """With random weights behind the hub names, as the libraries may be missing."""
    path = models[0].model.partition(":")[0]
    asked = []

    def load(rest):
        asked.append(rest)
        return Loaded(load_from_file(f"{path}:one")[0], "random")

    monkeypatch.setattr(robustbench, "load", load)
    monkeypatch.setitem(ON_CPU, "full", dataclasses.replace(TINY, without=TINY.without | {"MIM", "BIM", "score"}))
    scope, _ = resolve(STUDY.paper_models, Scope(tmp_path / "out", limit=2, models=("paper",), device="cpu"))
    measured = STUDY.plan(scope).run(NoProgress())
    assert measured.labels == ("PGD-AT", "TRADES")
    assert set(asked) == {"Engstrom2019Robustness", "Zhang2019Theoretically"}
    assert STUDY.tables(measured)[0].frame["published"].tolist() == [0.873, 0.849]


def test_missing_rows_are_named_on_the_page_and_figures_are_drawn(tmp_path):
    drawn = []
    measured = measurements(
        {
            ("Res-56", "white-box", "BIM", LINF, "eps"): ("minimum-radius", NEAR),
            ("Res-56", "white-box", "BIM", LINF, "fixed"): ("bim", NEAR),
            ("Res-56", "decision", "Boundary", L2, "both"): ("boundary", FAR),
        },
        missing=[defenses.DEFENSES[6]],
    )
    report = write(STUDY, measured, tmp_path, lambda figure, path: drawn.append((path.name, figure)))
    assert [name for name, _ in drawn] == [
        "figure1.png",
        "figure4.png",
        "figure6.png",
        "white-box-linf-untargeted-strength.png",
        "white-box-linf-untargeted-success-eps.png",
        "white-box-linf-untargeted-success-strength.png",
        "decision-l2-untargeted-success-eps.png",
        "decision-l2-untargeted-success-strength.png",
    ]
    (panel,) = drawn[0][1].content.panels
    curve: Curve = panel.curves["Res-56"]
    assert (panel.attack, curve.at(0.0005).value, curve.at(0.002).value) == ("BIM", 1.0, 0.0)
    page = (tmp_path / "study.md").read_text()
    assert page.startswith(f"# {STUDY.title}, on CIFAR-10\n")
    assert "RSE: its model vgg16-rse is not in the zoo" in page
    assert "Figures 2, 3 and 5 of the paper have no counterpart here" in page
    assert "attacks under the L∞ norm](figures/figure1.png)" in page
    assert pd.read_csv(tmp_path / "tables" / "table3.csv")["median_distance"].tolist() == [0.001]
    assert len(report.findings) == page.partition("## Reasons")[2].count("\n### ") == 5
    assert pd.read_csv(tmp_path / "tables" / "findings.csv")["verdict"].tolist() == verdicts(measured)
    assert page.index("| finding |") < page.index("## How it was measured") < page.index("![Figure 1")


def test_the_command_writes_everything_and_names_what_it_leaves_out(models, tmp_path, monkeypatch, capsys):
    from robustassay.cli import main

    monkeypatch.setitem(SETTINGS, "quick", TINY)
    request = ["study", "dong2020", "--quick", "--models", models[0].model, "RSE", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(defenses, "is_available", lambda model: "vgg16" not in model)
    assert main(request) == 0
    said = capsys.readouterr()
    assert "Left out: RSE, as its model vgg16-rse is not in the zoo." in said.err
    assert "10 tasks, about" in said.err
    assert "cannot be said" in said.out
    assert (tmp_path / "out" / "figures" / "figure1.png").stat().st_size > 10_000
    assert main(request) == 0
    assert "all of them finished" in capsys.readouterr().err
    assert main(["study", "dong2020", "--models", "nonsense"]) == 2


@pytest.mark.long
def test_natural_training_falls_below_adversarial_training_as_in_figure_1(tmp_path):
    models = [BenchmarkDefense("natural", "resnet20-natural"), BenchmarkDefense("trained", "resnet20-pgd")]
    wanted = {("BIM", "eps"), ("MIM", "eps"), ("DeepFool", "both")}
    without = dataclasses.replace(QUICK, without=frozenset({"transfer", "score", "decision"}))
    cells = [
        cell
        for cell in attack_runs(models, without)
        if cell.key[1] == "Linf" and (cell.key[2].rpartition("-")[2], cell.key[3]) in wanted
    ]
    assert len(cells) == 6
    whole = plan_of(cells, data.load("cifar10-1k").take(6), tmp_path)
    figures = STUDY.figures(DongMeasurements(tuple(models), (), whole.run(NoProgress())))
    assert [panel.attack for panel in figures[0].content.panels] == ["BIM", "MIM", "DeepFool"]
    for panel in figures[0].content.panels:
        natural, trained = panel.curves.values()
        assert natural.median < 2 / 255 < 3 / 255 < trained.median
        assert natural.at(4 / 255).value < trained.at(4 / 255).value
