"""The study of Su et al.: what is declared, that nothing is done twice, and that findings follow from numbers."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from robustassay import attacks, data
from robustassay.analysis.panels import Lines
from robustassay.cli import main
from robustassay.errors import BadRequest
from robustassay.evaluation import Result
from robustassay.evaluation.progress import NoProgress
from robustassay.records import SCHEMA
from robustassay.store import Store
from robustassay.studies import timing
from robustassay.studies.measures import clever
from robustassay.studies.page import Finding
from robustassay.studies.runs import RunTask, Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.su2018 import STUDY, tasks
from robustassay.studies.su2018.distortion_findings import depth_pairs, distortion_findings
from robustassay.studies.su2018.measurements import LINF, LTWO, SuMeasurements, bootstrap
from robustassay.studies.su2018.models import PAPER_MODELS, PAPER_TOP1, StudiedModel, choose
from robustassay.studies.su2018.plan import attack_runs, plan_of, settings_for
from robustassay.studies.su2018.settings import (
    FULL,
    FULL_ON_CPU,
    IMAGENET,
    IMAGENET_ON_CPU,
    PAPER_EPS,
    QUICK,
    SETTINGS,
    SMALLEST,
    SuSettings,
)
from robustassay.studies.su2018.setup import conclusion
from robustassay.studies.su2018.success_findings import success_findings
from robustassay.studies.su2018.transfer_findings import transfer_findings
from robustassay.studies.task import ComputeTask

MODELS = """
import torch
from pathlib import Path
from torch import nn

def make(at):
    head = nn.Linear(48, 10)
    head.load_state_dict(torch.load(Path(__file__).with_name("heads.pt"))[at])
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), head).eval()

def one():
    return make(0)

def two():
    return make(1)

def three():
    return make(2)
"""

TINY = SuSettings(
    eps=(8,),
    iterations=(3,),
    smallest_iterations=3,
    transfer_eps=(8,),
    kappas=(0, 5),
    searches=2,
    steps=12,
    goals=("untargeted", "random"),
    transfer_goals=("untargeted",),
    images=12,
    minimum_images=8,
    clever_images=12,
    clever_batches=3,
    clever_samples=2,
    clever_goals=("random",),
    description="a test",
)


def head(seed):
    """Fit a linear model that knows the first images nearly by heart, from some of their pixels."""
    few = data.load("cifar10-1k").take(60)
    kept = (torch.rand(48, generator=torch.Generator().manual_seed(seed)) < 0.8).float()
    x = F.avg_pool2d(few.images(slice(None)), 8).flatten(1) * kept
    ones = torch.cat((x, torch.ones(60, 1)), 1)
    wanted = F.one_hot(few.labels, 10).float()
    found = torch.linalg.solve(ones.T @ ones + 1e-4 * torch.eye(49), ones.T @ wanted)
    return {"weight": 10 * found[:48].T * kept, "bias": 10 * found[48]}


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    torch.save([head(seed) for seed in range(3)], tmp_path / "heads.pt")
    return [f"{path}:{name}" for name in ("one", "two", "three")]


@pytest.fixture
def done(monkeypatch):
    """Count what is computed."""
    seen = []

    def counted(where, name):
        whole = vars(where)[name]

        def call(*arguments, **named):
            seen.append(name)
            return whole(*arguments, **named)

        monkeypatch.setattr(where, name, call)

    counted(Store, "append")  # a wave of an attack, whoever runs it
    counted(clever.Clever, "__call__")
    counted(tasks, "transfer_outcomes")
    return seen


def test_the_full_study_is_the_papers():
    columns = FULL.attacks()
    assert [column.name for column in columns if column.name.startswith("I-FGSM") and not column.smallest_eps] == [
        "I-FGSM 10",
        "I-FGSM 30",
        "I-FGSM 50",
    ]
    assert {column.name for column in columns if column.name.startswith("C&W")} == {
        f"C&W κ={kappa}" for kappa in (0, 10, 20, 30, 40)
    }
    assert {"untargeted", "random", "least-likely"} == set(FULL.goals)
    chosen = choose(None)
    assert {model.family for model in chosen} >= {"alexnet", "vgg", "resnet", "densenet", "inception", "mobilenet"}
    assert all(model.name.endswith("-natural") for model in chosen)
    cells = attack_runs(chosen, FULL)
    assert len({cell.key for cell in cells}) == len({cell.folder(0) for cell in cells}) == len(cells)
    for settings in (FULL, QUICK, IMAGENET, IMAGENET_ON_CPU):
        for column in (*settings.attacks(), *settings.transferred()):
            made = attacks.create(column.attack)
            assert type(column.norm) in made.norms
            assert made.seeks_minimum == (column.seeks_minimum and not column.smallest_eps)
    assert {attack.name for attack in FULL.transferred()} >= {
        *("FGSM 0.3", "I-FGSM 10, 0.3", "I-FGSM 30, 0.3", "I-FGSM 50, 0.3"),
        *(f"{way} κ={kappa}" for way in ("C&W", "EAD-L1") for kappa in (0, 10, 20, 30, 40)),
    }
    assert {attack.kappa for attack in FULL.attacks("least-likely")} == {None, 0}
    ten = next(column for column in columns if column.name == "I-FGSM 10")
    assert attacks.create(ten.attack) == attacks.create("bim:steps=10,rel_step=0.1")  # eps / T a step
    with pytest.raises(BadRequest, match="no model"):
        choose(["nonsense"])


def test_a_cpu_measures_less_and_a_gpu_the_whole(tmp_path):
    assert settings_for(Scope(tmp_path, device="cpu")) is FULL_ON_CPU
    assert settings_for(Scope(tmp_path, dataset="imagenet", device="cpu")) is IMAGENET_ON_CPU
    assert settings_for(Scope(tmp_path, quick=True, device="cpu")) is QUICK
    assert FULL_ON_CPU.attacks() == QUICK.attacks()  # the records of `--quick` count


def test_what_findings_need_of_all_models_comes_first(tmp_path):
    chosen = choose(["vgg11-natural", "resnet20-natural"])
    made = plan_of(chosen, FULL, Workspace(data.load("cifar10-1k").take(2), tmp_path))
    order: list[tuple[str, ...]] = []
    for task in made.tasks:
        what = ("clever",) if task.key[0] == "clever" else task.key[2:] if task.key[0] == "transfer" else task.key[1:]
        order.append((*what, "shown") if task.key[0] == "transfer" else what)
    first = {what: order.index(what) for what in order}
    last = {what: at for at, what in enumerate(order)}
    assert len(made.tasks) == 2 * (len(first) - 1) + len([what for what in order if what == ("clever",)])
    ends = [
        (goal, f"{way} κ={kappa}")
        for goal in ("random", "untargeted")
        for way in ("C&W", "EAD-L1")
        for kappa in (0, 40)
    ]
    between = [
        (goal, f"{way} κ={kappa}")
        for goal in ("random", "untargeted")
        for way in ("C&W", "EAD-L1")
        for kappa in (10, 20, 30)
    ]
    fast = [what for what in first if "κ" not in "".join(what) and "least-likely" not in what and what != ("clever",)]
    assert max(last[what] for what in fast) < min(first[what] for what in ends)
    assert max(last[what] for what in ends) < min(first[*what, "shown"] for what in ends)
    assert max(last[*what, "shown"] for what in ends) < first["clever",]
    assert last["clever",] < min(first[what] for what in between)
    assert (
        last["random", "EAD-L1 κ=30"] < first["untargeted", "EAD-L1 κ=10"] < first["untargeted", "EAD-L1 κ=10", "shown"]
    )
    alone = [what for what in first if "least-likely" in what]
    assert last["untargeted", "EAD-L1 κ=30", "shown"] < min(first[what] for what in alone)
    assert max(last[what] for what in alone) < first["untargeted", "C&W κ=10"]


def test_attacks_meet_as_many_images_and_models_as_their_settings_say(tmp_path):
    chosen = choose(["resnet20-natural", "vgg11-natural"])
    few = dataclasses.replace(
        QUICK,
        minimum_models=("vgg11-natural",),
        minimum_images=5,
        smallest_images=7,
        transfer_images=9,
        targeted_images=3,
    )
    runs = attack_runs(chosen, few)
    assert {run.model for run in runs if run.attack.startswith(("cw-", "ead-"))} == {"vgg11-natural"}
    assert {run.limit for run in runs if run.attack.startswith(("cw-", "ead-"))} == {5}
    assert {run.limit for run in runs if run.smallest_eps} == {7}
    assert {run.limit for run in runs if run.attack == "fgsm"} == {None}
    assert {run.model for run in runs if run.attack == "fgsm"} == {model.name for model in chosen}
    made = plan_of(chosen, few, Workspace(data.load("cifar10-1k").take(12), tmp_path))
    transfers = [task for task in made.tasks if isinstance(task, ComputeTask) and task.key[0] == "transfer"]
    shown = {task.key[1:]: task.samples for task in transfers}
    assert shown["resnet20-natural", "untargeted", "FGSM 16/255"] == 9
    assert shown["resnet20-natural", "random", "FGSM 16/255"] == 3
    assert shown["vgg11-natural", "random", "C&W κ=0"] == 5
    assert ("resnet20-natural", "random", "C&W κ=0") not in shown
    targeted = attack_runs(chosen, dataclasses.replace(few, smallest_goals=("random",)))
    assert {run.key[1] for run in targeted if run.smallest_eps} == {"random"}
    assert {run.key for run in runs} - {run.key for run in targeted} == {
        (model.name, "untargeted", SMALLEST) for model in chosen
    }
    without = dataclasses.replace(few, minimum_models=None, targeted_images=None)
    assert len(attack_runs(chosen, without)) - len(runs) == 2 * 4  # goals, and two attacks with two kappas
    assert {without.transfer_limit("random", attack) for attack in without.transferred()} == {5, 9}


@pytest.mark.long
def test_the_command_writes_everything_and_does_nothing_twice(names, done, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SETTINGS, "quick", TINY)
    out = tmp_path / "out"
    request = ["study", "su2018", "--quick", "--models", *names, "--out", str(out)]
    assert main(request) == 0
    said = capsys.readouterr()
    assert "3 models" in said.err
    assert "about" in said.err
    assert {name: done.count(name) for name in set(done)}.keys() == {"append", "__call__", "transfer_outcomes"}
    page = (out / "study.md").read_text()
    assert page.partition("## Reasons")[2].count("\n### ") == len(CLAIMS)
    pictures = {path.stem for path in (out / "figures").glob("*.png")}
    assert pictures == {
        *("scatter-linf", "scatter-l2", "scatter-clever"),
        *("figure1d", "figure1e"),
        *(f"transfer-untargeted-{way}" for way in ("fgsm-8-255", "i-fgsm-3", "c-w-0", "c-w-5")),
        *("transfer-untargeted-ead-l1-0", "transfer-untargeted-ead-l1-5"),
    }
    assert all(path.stat().st_size > 10_000 for path in (out / "figures").glob("*.png"))
    success = pd.read_csv(out / "tables" / "success-untargeted.csv")
    assert set(success["attack"]) == {*("FGSM 8/255", "I-FGSM 3", "C&W κ=0", "C&W κ=5", "EAD-L1 κ=0", "EAD-L1 κ=5")}
    assert (success[success["attack"] == "C&W κ=0"]["success"] > 0.5).all()
    rates = pd.read_csv(out / "tables" / "transfer.csv")
    rates = rates[(rates["attack"] == "C&W κ=0") & (rates["source"] == rates["target"])]
    own = rates.set_index("source")["rate"].loc[success["model"].unique()]
    np.testing.assert_allclose(own, success[success["attack"] == "C&W κ=0"]["success"])  # the diagonal is white-box

    before, written = len(done), (out / "study.md").read_text()
    assert main(request) == 0
    assert len(done) == before
    assert "all of them finished" in capsys.readouterr().err
    assert (out / "study.md").read_text() == written
    finished = plan_of(choose(names), TINY, Workspace(data.load("cifar10-1k").take(12), out))
    runs = [task.attack_run for task in finished.tasks if isinstance(task, RunTask)]
    assert not any(run.keep_images for run in runs)  # the page can be written where only records are kept
    more = plan_of(choose(names), TINY, Workspace(data.load("cifar10-1k").take(13), out))
    more.run(NoProgress())  # one more image: that one alone
    assert done[before:].count("__call__") == 0  # CLEVER keeps its twelve
    fgsm, ifgsm = 3 * 2, 3 * 2 * 2  # models, goals, and a search of the smallest eps; C&W and EAD keep their eight
    shown = 3 * 2  # examples of FGSM and I-FGSM for others
    assert done[before:].count("append") == fgsm + ifgsm + shown
    assert main(["study", "su2018", "--models", "nonsense"]) == 2


def test_runs_of_another_model_of_the_same_name_are_refused(names, tmp_path):
    settings = dataclasses.replace(TINY, goals=("untargeted",), kappas=(0,), clever_images=1)
    dataset = data.load("cifar10-1k").take(3)
    plan_of(choose(names[:1]), settings, Workspace(dataset, tmp_path / "out")).run(NoProgress())
    torch.save([head(seed) for seed in range(7, 10)], tmp_path / "heads.pt")
    timing.load_once.cache_clear()
    again = plan_of(choose(names[:1]), settings, Workspace(dataset, tmp_path / "out"))
    for name in ("FGSM 8/255", "C&W κ=0"):  # read by the study, and by what keeps images
        task = next(task for task in again.tasks if task.key[2] == name)
        with pytest.raises(BadRequest, match="another"):
            task.run({}, NoProgress())


def test_what_was_interrupted_goes_on(names, done, tmp_path, monkeypatch):
    settings = dataclasses.replace(TINY, goals=("untargeted",), kappas=(0,), clever_images=4)
    one = plan_of(choose(names[:2]), settings, Workspace(data.load("cifar10-1k").take(6), tmp_path / "out"))
    assert one.seconds() > 0
    whole = vars(tasks)["transfer_outcomes"]

    def stop(*arguments, **named):
        if done.count("transfer_outcomes") == 3:
            raise KeyboardInterrupt
        return whole(*arguments, **named)

    monkeypatch.setattr(tasks, "transfer_outcomes", stop)
    with pytest.raises(KeyboardInterrupt):
        one.run(NoProgress())
    so_far = len(done)
    monkeypatch.setattr(tasks, "transfer_outcomes", whole)
    one.run(NoProgress())
    assert set(done[so_far:]) <= {"transfer_outcomes", "append", "__call__"}
    assert done.count("__call__") == 2  # CLEVER of both models, after transfer
    assert done[so_far:].count("append") <= 2 * 2  # examples that were not made yet; no run is repeated
    assert done.count("transfer_outcomes") == 4 * 2
    assert one.seconds() == 0


# ---------------------------------------------------------------- findings, from made-up numbers


SETTINGS_HERE = SuSettings(
    eps=(8, 16), iterations=(10, 30), transfer_eps=(8, 16), kappas=(0, 20), goals=("untargeted", "random")
)
N = 40
WAYS = ("FGSM 8/255", "FGSM 16/255", "I-FGSM 10", "I-FGSM 10, 16/255", "I-FGSM 30, 16/255")
CLAIMS = {
    **{"law-linf": "The L∞", "law-l2": "The L2", "architecture": "Architecture", "depth": "Among DenseNets"},
    **{"vgg": "VGG", "families": "Examples of other", "order": "Untargeted, FGSM", "eps": "FGSM transfers"},
    **{"iterations": "I-FGSM transfers", "elastic": "EAD-L1 transfers", "goal": "Untargeted examples"},
    **{"asymmetry": "Transfer is", "weak": "FGSM with a random", "strength": "A larger eps"},
    **{"success": "I-FGSM with", "kappa": "A larger kappa", "measure": "The success at"},
}


def result(distances):
    far = np.asarray(distances, float)
    known = {"sample_id": [f"{row}" for row in range(len(far))], "label": 0, "clean_ok": True, "claimed": True}
    known |= {"valid": True, "success": True, "distance": far, "improvements": [[] for _ in far]}
    records = pd.DataFrame({name: known.get(name) for name in SCHEMA.names}, index=range(len(far)))
    return Result({"spec": {}, "title": "made"}, records.astype({"clean_ok": "boolean", "valid": "boolean"}), None)


def outcomes(models, rate):
    """Examples that fool a target as often as `rate(source, target)` says, always the first so many."""
    frames = []
    for source in models:
        for target in models:
            held = np.arange(N) < rate(source, target) * N
            told = {"source": source.name, "target": target.name, "sample": range(N), "label": 0, "aim": None}
            frames.append(
                pd.DataFrame(
                    {
                        **told,
                        "source_ok": pd.array([True] * N, dtype="boolean"),
                        "target_ok": True,
                        "predicted": held.astype(int),
                        "label_rank": held.astype(int),
                        "aim_rank": None,
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)


def measurements(distance, rate=lambda one, two: 0.5, models=None):
    models = models or MADE
    draw = np.random.default_rng(0)
    shared = draw.lognormal(0, 0.3, N)  # an image that is hard for one model is hard for all
    results = {}
    for model in models:
        far = distance(model) * shared
        results[model.name, "random", SMALLEST] = result(far)
        results[model.name, "random", "C&W κ=0"] = result(10 * far)
    ways = {("untargeted", way): outcomes(models, rate) for way in WAYS}
    return SuMeasurements(tuple(models), SETTINGS_HERE, results, {}, ways)  # type: ignore[arg-type]


MADE = [
    StudiedModel(f"{family}{depth}", family, 10 ** (4 + at % 3), depth, accuracy)
    for at, (family, depth, accuracy) in enumerate(
        [
            *[("vgg", 11, 0.70), ("vgg", 16, 0.72), ("resnet", 20, 0.80), ("resnet", 56, 0.83)],
            *[("densenet", 40, 0.88), ("densenet", 58, 0.90), ("alexnet", 8, 0.60), ("alexnet", 9, 0.62)],
        ]
    )
]


PARTS = {
    distortion_findings: ("law-linf", "law-l2", "architecture", "depth"),
    transfer_findings: ("vgg", "families", "order", "eps", "iterations", "elastic", "goal", "asymmetry"),
    success_findings: ("weak", "strength", "success", "kappa", "measure"),
}


def answer(claim, measured):
    part = next(part for part in PARTS if claim in PARTS[part])
    (found,) = [finding for finding in part(measured) if finding.claim.startswith(CLAIMS[claim])]
    return found


def verdict(claim, *given, **named):
    return answer(claim, measurements(*given, **named)).verdict


def test_every_finding_is_tested_and_has_its_published_number():
    found = STUDY.findings(measurements(lambda model: 0.05))
    assert [finding.number for finding in found] == list(range(1, len(CLAIMS) + 1))
    assert all(finding.published and finding.because for finding in found)
    for finding, start in zip(found, CLAIMS.values(), strict=True):
        assert finding.claim.startswith(start)


@pytest.mark.parametrize("claim", ["law-linf", "law-l2"])
@pytest.mark.parametrize(
    ("law", "said"),
    [
        (lambda model: 0.1 + 0.03 * np.log(1 - model.accuracy), "holds"),
        (lambda model: 0.01 - 0.03 * np.log(1 - model.accuracy), "does not hold"),
        (lambda model: 0.05 + 0.01 * (model.depth % 2), "cannot be said"),
    ],
)
def test_the_law_is_judged_over_all_models(claim, law, said):
    assert verdict(claim, law) == said


def test_l2_over_pixels_gets_no_verdict_where_inputs_differ_in_size():
    made = measurements(lambda model: 0.1 + 0.03 * np.log(1 - model.accuracy))
    made = dataclasses.replace(made, pixels={MADE[0].name: 64 * 64})
    found = answer("law-l2", made)
    assert found.verdict == "cannot be said"
    assert "confounded" in found.because
    assert "no verdict uses it" in answer("architecture", made).reasons[1]
    assert STUDY.findings(made)[2].claim.startswith("The RMSD")


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        (lambda model: {"vgg": 0.02, "resnet": 0.05, "densenet": 0.03, "alexnet": 0.09}[model.family], "holds"),
        (lambda model: 0.01 * np.log10(model.parameters), "does not hold"),
        (lambda model: 0.05, "cannot be said"),
    ],
)
def test_architecture_against_size(distance, said):
    assert verdict("architecture", distance) == said


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        (lambda model: 0.01 * model.depth, "holds"),
        (lambda model: 0.5 / model.depth, "does not hold"),
        (lambda model: 0.5 / model.depth if model.family == "vgg" else 0.01 * model.depth, "holds"),  # not about VGGs
        (lambda model: 0.01 * model.depth if model.family == "resnet" else 0.1, "cannot be said"),
        (lambda model: 0.05, "cannot be said"),
    ],
)
def test_depth(distance, said):
    assert verdict("depth", distance) == said


def test_only_networks_that_differ_in_numbers_are_compared_in_depth():
    named = [("net-lite0", 50), ("net-lite1", 65), ("net-lite2", 65), ("net-b0", 40), ("net-lite3", 80)]
    models = tuple(StudiedModel(name, "net", 1, depth) for name, depth in named)
    pairs = {(one.name, two.name) for one, two in depth_pairs(models)}
    lite = (
        ("net-lite0", "net-lite1"),
        ("net-lite0", "net-lite2"),
        ("net-lite1", "net-lite3"),
        ("net-lite2", "net-lite3"),
    )
    assert pairs == set(lite)


@pytest.mark.parametrize(
    ("rate", "vgg", "families"),
    [
        (lambda one, two: 0.8 if one.family == "vgg" or one.family == two.family else 0.3, "holds", "holds"),
        (lambda one, two: 0.8 if one.family == two.family else 0.3, "cannot be said", "holds"),
        (
            lambda one, two: 0.1 if one.family == "vgg" or one.family == two.family else 0.6,
            "does not hold",
            "does not hold",
        ),
        (lambda one, two: 0.5, "cannot be said", "cannot be said"),
    ],
)
def test_who_transfers_to_whom(rate, vgg, families):
    made = measurements(lambda model: 0.05, rate)
    assert answer("vgg", made).verdict == vgg
    assert answer("families", made).verdict == families
    without = measurements(lambda model: 0.05, rate, models=[model for model in MADE if model.family != "vgg"])
    assert answer("vgg", without).verdict == "cannot be said"
    assert "no VGG" in answer("vgg", without).because


def test_a_family_is_compared_from_the_same_sources_and_to_the_same_targets():
    weak = {"resnet", "densenet"}  # families that any examples fool
    models = [model for model in MADE if model.family in weak | {"vgg"}]
    found = answer("families", measurements(lambda model: 0.05, lambda one, two: 0.9 * (two.family in weak), models))
    assert found.verdict == "cannot be said"  # more within than to VGGs, but so do the examples of others
    sources, targets, *_ = found.reasons
    assert "from the same sources: 90.0% against 45.0%" in sources
    assert "to the same targets: 90.0% against 90.0%" in targets
    lone = measurements(lambda model: 0.05, models=[MADE[2], MADE[4], MADE[6]])
    assert answer("families", lone).verdict == "cannot be said"


def test_families_of_networks_with_inputs_of_different_sizes_do_not_contradict():
    rate = lambda one, two: 0.1 if one.family == two.family else 0.6  # noqa: E731
    made = measurements(lambda model: 0.05, rate)
    assert answer("families", made).verdict == "does not hold"
    sizes = dataclasses.replace(made, pixels={model.name: 1000 + at for at, model in enumerate(MADE)})
    assert answer("families", sizes).verdict == "cannot be said"
    assert "size" in answer("families", sizes).because
    skewed = measurements(lambda model: 0.05, lambda one, two: 0.9 if one.name < two.name else 0.2)
    skewed = dataclasses.replace(skewed, pixels={model.name: 1000 + at for at, model in enumerate(MADE)})
    assert answer("asymmetry", skewed).verdict == "cannot be said"  # one direction crops, the other adds a border


def test_transfer_of_attacks_is_compared_from_the_sources_of_both():
    rates = {"FGSM 16/255": 1.0, "I-FGSM 10, 16/255": 0.8, "I-FGSM 30, 16/255": 0.8}
    ways = {("untargeted", way): outcomes(MADE, lambda one, two, rate=rate: rate) for way, rate in rates.items()}
    for way, rate in {"EAD-L1 κ=20": 0.5, "EAD-L1 κ=0": 0.1, "C&W κ=20": 0.2}.items():
        found = outcomes(MADE[:4], lambda one, two, rate=rate: rate)
        own = found["source"] == found["target"]
        found.loc[own, "label_rank"] = (found.loc[own, "sample"] < 32).astype(int)
        ways["untargeted", way] = found
    strong = ways["untargeted", "I-FGSM 10, 16/255"]
    strong.loc[~strong["source"].isin([model.name for model in MADE[:4]]), "label_rank"] = 0  # sources of I-FGSM alone
    made = dataclasses.replace(measurements(lambda model: 0.05), outcomes=ways)
    order = answer("order", made)
    assert order.verdict == "holds"
    assert "I-FGSM 10, 16/255 against EAD-L1 κ=20 from 4 sources: 80.0% against 50.0%" in order.reasons[1]
    assert "where EAD-L1 κ=20 succeeds: 100.0% against 62.5%" in order.reasons[2]  # 20 of 32
    assert "where EAD-L1 κ=20 and C&W κ=20 succeed" in order.reasons[4]
    assert answer("elastic", made).verdict == "holds"
    fails = ways["untargeted", "EAD-L1 κ=20"]
    fails.loc[fails["sample"] >= 5, "label_rank"] = 0  # what seldom transfers has seldom succeeded on its source
    assert answer("order", made).verdict == "cannot be said"


def test_vgg_is_compared_with_others_to_the_same_targets():
    found = answer("vgg", measurements(lambda model: 0.05, lambda one, two: 0.2 if two.family == "vgg" else 0.6))
    assert found.verdict == "cannot be said"  # VGGs are hard to fool, and no other source is worse for it
    assert "60.0% against 60.0%" in found.reasons[0]
    made = measurements(lambda model: 0.05)
    made.outcomes["untargeted", "EAD-L1 κ=20"] = outcomes(MADE[:4], lambda one, two: 0.9)
    assert not any("EAD" in reason for reason in answer("vgg", made).reasons)  # of some sources only


def test_fgsm_and_i_fgsm_are_compared_at_both_eps():
    def rate(way):
        return lambda *_: {"FGSM 8/255": 0.2}.get(way, 0.6)

    ways = {("untargeted", way): outcomes(MADE, rate(way)) for way in WAYS}
    found = answer("order", dataclasses.replace(measurements(lambda model: 0.05), outcomes=ways))
    assert found.verdict == "does not hold"
    assert "FGSM 8/255 against I-FGSM 10: 20.0% against 60.0%" in found.reasons[0]


def successes(made, model, goal, way, held):
    records = result(np.full(N, 0.05))
    records.records["success"] = records.records["valid"] = np.arange(N) < held
    made.results[model.name, goal, way] = records


def test_success_is_compared_on_the_same_models():
    made = measurements(lambda model: 0.05)
    for model in MADE:
        successes(made, model, "random", "C&W κ=0", 40 if model.family == "vgg" else 4)
        if model.family == "vgg":
            successes(made, model, "random", "C&W κ=20", 20)
    found = answer("kappa", made)
    assert "C&W κ=0 against C&W κ=20, 2 of 8 models: 100.0% against 50.0%" in found.reasons[0]
    assert found.verdict == "cannot be said"  # EAD-L1 was not run


@pytest.mark.parametrize(("met", "verdict"), [(3, "cannot be said"), (4, "holds")])
def test_a_comparison_on_few_models_gets_no_verdict(met, verdict):
    made = measurements(lambda model: 0.05)
    for at, model in enumerate(MADE):
        for goal, way in ((goal, way) for goal in ("random", "untargeted") for way in ("C&W", "EAD-L1")):
            if at < met or (goal, way) != ("random", "EAD-L1"):
                successes(made, model, goal, f"{way} κ=0", N)
                successes(made, model, goal, f"{way} κ=20", N // 4)
    found = answer("kappa", made)
    assert found.verdict == verdict
    few = "1 of 4 comparisons on fewer than half of the models say nothing"
    assert (few in found.because) == (verdict == "cannot be said")


def test_runs_of_another_device_are_named():
    made = measurements(lambda model: 0.05)
    for at, key in enumerate(made.results):
        made.results[key].manifest["hardware"] = {"device": "cpu" if at == 1 else "GPU"}
    assert (
        "Computed on a CPU, all others on GPU: C&W κ=0, random target, on 1 of the 8 models that it met."
        in STUDY.setup(made).deviations
    )


def test_an_attack_on_few_models_gets_no_verdict_on_all():
    made = measurements(lambda model: 0.05)
    for at, model in enumerate(MADE):
        successes(made, model, "random", "I-FGSM 10", N)
        if at < 3:
            successes(made, model, "random", "EAD-L1 κ=0", N)
    found = answer("success", made)
    assert "EAD-L1 κ=0 100% (100% to 100%, n = 40, 3 of 8 models)" in found.measured
    assert found.verdict == "cannot be said"
    assert "fewer than half of the models" in found.because
    for model in MADE:
        successes(made, model, "random", "EAD-L1 κ=0", N)
    assert answer("success", made).verdict == "holds"


def test_an_eps_between_the_ends_may_contradict():
    def made(*held):
        found = measurements(lambda model: 0.05)
        for model in MADE:
            for n, count in zip((4, 8, 16), held, strict=True):
                successes(found, model, "random", f"FGSM {n}/255", count)
                successes(found, model, "untargeted", f"FGSM {n}/255", N - count)
        eps = dataclasses.replace(SETTINGS_HERE, eps=(4, 8, 16))
        return answer("strength", dataclasses.replace(found, settings=eps))

    assert made(30, 20, 2).verdict == "holds"
    assert made(2, 20, 30).verdict == "does not hold"
    bent = made(20, 34, 2)
    assert bent.verdict == "cannot be said"
    assert "steps between them" in bent.because


def test_a_law_that_rests_on_one_family_says_so():
    families = {"alexnet": 0.09, "vgg": 0.057}
    far = {"resnet20": 0.047, "densenet58": 0.052}
    found = answer("law-linf", measurements(lambda model: far.get(model.name, families.get(model.family, 0.05))))
    assert found.verdict == "cannot be said"
    assert found.because.endswith("is above zero, but without any one of resnet and alexnet it may be zero")


def test_the_conclusion_says_what_of_a_law_holds():
    law = "The L∞ distortion of I-FGSM falls linearly with the logarithm of the classification error"
    found = [Finding(1, law, "holds", (), "", "", "the slope is above zero"), Finding(2, "b", "holds", (), "", "", "x")]
    assert conclusion(found)[2:] == [f"- Holds here too: {law} (the slope is above zero).", "- Holds here too: b."]


@pytest.mark.parametrize(("held", "failed", "lines"), [(12, 3, 10), (2, 1, 4), (0, 12, 10), (12, 0, 10)])
def test_the_conclusion_has_all_that_does_not_hold_in_ten_lines(held, failed, lines):
    told = [("holds", at) for at in range(held)] + [("does not hold", at + held) for at in range(failed)]
    found = [Finding(at, f"claim {at}", said, (), "", "", "") for said, at in [*told, ("cannot be said", 90)]]
    written = conclusion(found)[2:]
    assert len(written) == lines
    assert [at for at in (*range(held + failed), 90) if not re.search(rf"\b{at}\b", "".join(written))] == []
    assert sum("Does not hold" in line for line in written) == min(failed, 9)


def test_what_was_not_measured_is_counted_and_not_shown():
    made = measurements(lambda model: 0.05)
    left = ("transfer", "vgg11", "random", "C&W κ=0"), ("vgg11", "least-likely", "I-FGSM 10"), ("clever", "vgg11", "0")
    made = dataclasses.replace(made, left=left, finished=7)
    assert STUDY.setup(made).deviations[-1] == (
        "3 of 10 tasks are not finished and left out, for want of time or memory: 1 of transfer of C&W and EAD-L1, 1 "
        "with the least likely target and 1 of CLEVER."
    )
    heading = next(table for table in STUDY.tables(made) if table.name == "success-random").heading
    assert heading == ("model", "C&W κ=0")
    lines = next(table for table in STUDY.tables(made) if table.name == "distortion").lines
    assert {line[1] for line in lines} == {"random target"}


def test_a_small_eps_alone_does_not_contradict_weak_fgsm():
    def made(small, large):
        found = measurements(lambda model: 0.05)
        for model in MADE:
            for way, held in {"FGSM 8/255": small, "FGSM 0.3": large}.items():
                records = result(np.full(N, 0.05))
                records.records["success"] = np.arange(N) < held
                found.results[model.name, "random", way] = records
        eps = dataclasses.replace(SETTINGS_HERE, eps=(8, PAPER_EPS), photographs=True)
        return answer("weak", dataclasses.replace(found, settings=eps))

    assert made(0, 0).verdict == "holds"
    assert made(0, 20).verdict == "does not hold"
    assert made(20, 0).verdict == "cannot be said"
    assert "0.3" in made(20, 0).because


def test_attacks_and_directions_of_transfer():
    rates = {
        "FGSM 8/255": 0.3,
        "FGSM 16/255": 0.9,
        "I-FGSM 10": 0.3,
        "I-FGSM 10, 16/255": 0.6,
        "I-FGSM 30, 16/255": 0.4,
    }
    ways = {("untargeted", way): outcomes(MADE, lambda one, two, rate=rate: rate) for way, rate in rates.items()}
    made = dataclasses.replace(measurements(lambda model: 0.05), outcomes=ways)
    assert answer("eps", made).verdict == answer("iterations", made).verdict == "holds"
    assert answer("order", made).verdict == "cannot be said"  # EAD and C&W were not run
    assert answer("asymmetry", made).verdict == "cannot be said"
    skewed = measurements(lambda model: 0.05, lambda one, two: 0.9 if one.name < two.name else 0.2)
    assert answer("asymmetry", skewed).verdict == "holds"
    few = {which: part[part["sample"] < 6] for which, part in ways.items()}
    assert answer("eps", dataclasses.replace(made, outcomes=few)).verdict == "cannot be said"


def test_the_paper_counts_errors_of_the_target_as_transfer():
    ways = outcomes(MADE[:2], lambda one, two: 0.5)
    ways["target_ok"] = ~((ways["target"] == MADE[1].name) & (ways["sample"] < 10))
    made = dataclasses.replace(
        measurements(lambda model: 0.05, models=MADE[:2]), outcomes={("untargeted", "FGSM 8/255"): ways}
    )
    cells = next(table for table in STUDY.tables(made) if table.name == "transfer").frame
    cell = cells[(cells["source"] == MADE[0].label) & (cells["target"] == MADE[1].label)]
    assert cell["rate"].tolist() == [pytest.approx(10 / 30)]
    assert cell["rate_as_paper"].tolist() == [0.5]
    assert cell[["images", "images_as_paper"]].to_numpy().tolist() == [[30, 40]]


def test_a_page_says_which_models_and_images_an_attack_met():
    made = measurements(lambda model: 0.05)
    results = {key: kept for key, kept in made.results.items() if key[2] != "C&W κ=0" or key[0] == "vgg11"}
    ways = {**made.outcomes, ("untargeted", "EAD-L1 κ=0"): outcomes(MADE[:1], lambda one, two: 0.5)}
    made = dataclasses.replace(made, results=results, outcomes=ways)
    scale = {row.what: row.here for row in STUDY.setup(made).scale}
    assert scale["images of C&W and EAD-L1"] == f"{N}; of 8 models, random target: C&W κ=0 on 1"
    assert (scale["kappa"], scale["targets"]) == ("0", "random")
    assert scale["images of I-FGSM's smallest eps"] == str(N)
    assert scale["CLEVER"] == "not run"
    made.outcomes["random", "FGSM 8/255"] = outcomes(MADE, lambda one, two: 0.5).query("sample < 7")
    made.outcomes["random", "FGSM 8/255"]["aim_rank"] = 9
    (shown,) = [row.here for row in STUDY.setup(made).scale if row.what.startswith("images of transfer by FGSM")]
    assert shown == f"{N} untargeted, 7 random target"
    notes = next(table for table in STUDY.tables(made) if table.name == "transfer").notes
    assert notes[-1].startswith("EAD-L1 κ=0: means over the examples of 1 of the 8 models")


def test_the_common_images_are_those_that_all_models_classify_correctly():
    made = measurements(lambda model: 0.05)
    made.results["vgg11", "random", "C&W κ=0"].records.loc[:4, "clean_ok"] = False
    for which in (SMALLEST, "C&W κ=0"):
        made.results["vgg11", "random", which].records.loc[:4, "clean_ok"] = False
    assert len(made.common) == N - 5
    assert set(made.robustness_on_common["images"]) == {N - 5}


def test_the_paper_has_18_networks():
    models = PAPER_MODELS["imagenet"]
    assert len(models) == len(PAPER_TOP1) == 18
    assert {model.label for model in models} == set(PAPER_TOP1)
    assert len({model.family for model in models}) == 7
    assert [model.label for model in models if not model.model] == ["Inception-v2"]
    chosen = choose(["torchvision:vgg16", "timm:nasnetalarge.tf_in1k"])
    assert [(model.family, model.accuracy) for model in chosen] == [("vgg", 0.715), ("nasnet", 0.827)]


def test_distances_that_are_missing_are_named():
    made = measurements(lambda model: 0.05)
    records = made.results["vgg11", "random", "C&W κ=0"].records
    records.loc[:9, ["claimed", "valid", "success"]] = False
    assert "not nearly all succeed: vgg11 75%;" in answer("law-l2", made).reasons[-1]
    assert not any("not nearly all" in reason for reason in answer("law-linf", made).reasons)


def test_nothing_can_be_said_of_one_model():
    alone = measurements(lambda model: 0.05, models=MADE[:1])
    assert {finding.verdict for finding in STUDY.findings(alone)} == {"cannot be said"}


def test_numbers_are_told_in_their_units():
    made = measurements(lambda model: 0.02 * (1 + (model.family == "vgg")))
    table = next(table for table in STUDY.tables(made) if table.name == "distortion")
    frame = table.frame.set_index(["model", "goal", "measure"])["mean"]
    vgg = made.values(MADE[0], LTWO)
    assert frame["vgg11", "random", "L2 of C&W / pixels, x 10^4"] == pytest.approx(1e4 * vgg.mean())
    assert vgg.mean() == pytest.approx(10 * made.values(MADE[0], LINF).mean() / 1024)
    assert frame["vgg11", "random", "L∞ of I-FGSM, x 255"] > frame["alexnet8", "random", "L∞ of I-FGSM, x 255"]


def test_bootstrap_leaves_out_unknown_values():
    low, high = bootstrap(np.r_[np.zeros(50), np.ones(50), np.nan])
    assert 0.38 < low < 0.45 < 0.55 < high < 0.62


def test_undecided_estimates_and_those_above_a_success_are_counted():
    made = measurements(lambda model: 0.05)
    far = made.distances(MADE[0], "random", "C&W κ=0")
    found = pd.DataFrame(
        {
            **{"sample_id": list(far.index[:4]), "aim": "random", "capped": False, "p_value": 0.5},
            "estimate": [2 * far.iloc[0], *far.iloc[1:4] / 2],
            "shape": [5.0, 5.0, 100.0, np.nan],
            "fell_back": [False, False, False, True],
        }
    )
    known = dataclasses.replace(made, clever={MADE[0].name: found})
    (row,) = next(table for table in STUDY.tables(known) if table.name == "clever").frame.to_dict("records")
    assert (row["fell_back"], row["penalised"], row["above_cw"]) == (0.25, 0.25, 0.25)
    assert row["decided"] == pytest.approx(found["estimate"][:2].mean())


def test_transfer_over_kappa_is_drawn_of_attacks_that_met_every_model_with_each_kappa():
    made = measurements(lambda model: 0.05)
    assert "figure5-kappa" not in {figure.name for figure in STUDY.figures(made)}
    ways = {("untargeted", f"EAD-L1 κ={kappa}"): outcomes(MADE, lambda one, two: 0.25) for kappa in (0, 20)}
    ways |= {("untargeted", f"C&W κ={kappa}"): outcomes(MADE[kappa // 20 :], lambda one, two: 0.5) for kappa in (0, 20)}
    whole = dataclasses.replace(made, outcomes={**made.outcomes, **ways})
    (figure,) = [figure for figure in STUDY.figures(whole) if figure.name == "figure5-kappa"]
    assert isinstance(figure.content, Lines)
    assert figure.content.solid.to_dict() == {"EAD-L1, untargeted": {"0": 0.25, "20": 0.25}}


def test_the_least_likely_target_is_reported_beside_the_random_one():
    made = measurements(lambda model: 0.1 + 0.03 * np.log(1 - model.accuracy))
    least = {(name, "least-likely", attack): found for (name, _, attack), found in made.results.items()}
    settings = dataclasses.replace(SETTINGS_HERE, goals=("untargeted", "random", "least-likely"))
    both = dataclasses.replace(made, results={**made.results, **least}, settings=settings)
    assert any(reason.startswith("Least-likely target, all models") for reason in answer("law-linf", both).reasons)
    assert any("Least-likely target: C&W κ=0 100%" in reason for reason in answer("success", both).reasons)
    assert not any("Least-likely" in reason for reason in answer("success", made).reasons)


def test_transfer_from_few_sources_gets_no_verdict():
    made = measurements(lambda model: 0.05)

    def of(sources, rate):
        found = outcomes(MADE, lambda one, two: 1 if one is two else rate)
        return found[found["source"].isin([model.name for model in MADE[:sources]])]

    for sources, said in ((4, "holds"), (3, "cannot be said")):
        ways = {("untargeted", "EAD-L1 κ=20"): of(sources, 0.3), ("untargeted", "EAD-L1 κ=0"): of(sources, 0.1)}
        ways |= {("untargeted", "I-FGSM 30, 16/255"): of(8, 0.9)}
        found = answer("elastic", dataclasses.replace(made, outcomes={**made.outcomes, **ways}))
        assert found.verdict == said
        assert ("fewer than half of the models" in found.because) == (sources == 3)
