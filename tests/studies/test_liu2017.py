"""Liu et al.: the attack and its ensembles, rays, matched strength, and the study from end to end."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from robustassay.analysis.geometry import Regions
from robustassay.attacks.gradient.fgsm import FGSM
from robustassay.attacks.gradient.liu import Liu, hidden_or_found, penalty_gradient, shares_in_mean
from robustassay.cli.study.drawing import draw
from robustassay.data import Dataset
from robustassay.errors import BadRequest, Interrupted, UnknownName
from robustassay.evaluation.arguments import as_dataset
from robustassay.evaluation.progress import NoProgress
from robustassay.models.weights import hash_state
from robustassay.rng import Streams
from robustassay.studies import crafting
from robustassay.studies.cache import CachedTable
from robustassay.studies.crafting import Crafting, LoadedModel
from robustassay.studies.liu2017 import STUDY, measures, planes
from robustassay.studies.liu2017.comparisons import best_single, difference, held_out, mean_interval
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.findings import CLAIMS
from robustassay.studies.liu2017.models import PAPER_MODELS, choose, family_of
from robustassay.studies.liu2017.plan import optional, tasks
from robustassay.studies.liu2017.settings import (
    EXAMPLE_SETS,
    FULL,
    FULL_ON_CPU,
    NEEDED,
    OTHER_OBJECTIVES,
    QUICK,
    ExampleSet,
    LiuSettings,
    Sizes,
)
from robustassay.studies.liu2017.tables import distances
from robustassay.studies.measures import line_search
from robustassay.studies.study import Plan
from robustassay.studies.writer import write
from robustassay.target import EnsembleModel, GradientAccess, Join, Ledger, LocalModel, TargetModel
from robustassay.target.calls import BatchedCalls
from robustassay.threat import L2, Ball, Goal, LInf, RandomTarget, Targeted, ThreatModel, Untargeted
from robustassay.threat.rmsd import l2_of_rmsd, rmsd
from tests.support.toys import CPU, Linear

CLASSES = 4


def toy(seed: int, apart: float = 1.0) -> nn.Module:
    """A smooth model of 3 x 4 x 4 images; those of different seeds share most of what they know."""
    draw = torch.Generator().manual_seed(99)
    own = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.Tanh(), nn.Linear(12, CLASSES))
    for parameter in model.parameters():
        shared, new = (torch.randn(parameter.shape, generator=each) for each in (draw, own))
        parameter.data = 0.6 * shared + 0.2 * apart * new
    return model.eval().requires_grad_(False)


def network(module: nn.Module) -> TargetModel:
    return LocalModel(module, CLASSES, CPU, 8)


def view(on: TargetModel, x: Tensor, goal: Goal) -> GradientAccess:
    books = Ledger.never_done(Ball(LInf(1.0), x, torch.ones(len(x))), goal)
    ids = [str(row) for row in range(len(x))]
    return GradientAccess(on, books, Streams.of(0, ids), torch.arange(len(x)), lambda _: None)


X = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(5))
LABELS = network(toy(1)).logits(X).argmax(1)
GOALS = (Untargeted(LABELS), Targeted((LABELS + 1) % CLASSES))
both_goals = pytest.mark.parametrize("goal", GOALS, ids=["untargeted", "targeted"])


# ---------------------------------------------------------------- the attack


@both_goals
def test_the_loss_is_the_papers(goal):
    logits = 4 * torch.randn(6, CLASSES, generator=torch.Generator().manual_seed(0))
    p = logits.double().softmax(1).gather(1, goal.labels[:, None]).squeeze(1)
    wanted = (1 - p).log() if isinstance(goal, Untargeted) else p.log()
    assert torch.allclose(hidden_or_found(logits, goal).double(), wanted, atol=1e-6)


def test_the_loss_of_a_very_sure_model_still_has_a_slope():
    logits = torch.tensor([[60.0, 0.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(hidden_or_found(logits, Untargeted(torch.tensor([0]))).sum(), logits)
    assert slope[0, 0] == pytest.approx(-1)


@both_goals
def test_the_loop_is_torchs_adam_on_the_image(goal):
    x_adv = Liu(steps=12, rate=0.02)(view(network(toy(1)), X, goal), X)
    image = X.clone().requires_grad_()
    adam, model = torch.optim.Adam([image], lr=0.02, maximize=True), toy(1)
    for _ in range(12):
        adam.zero_grad()
        hidden_or_found(model(image), goal).sum().backward()
        adam.step()
        image.data.clamp_(0, 1)
    assert (x_adv - X).abs().max() > 0.1
    assert torch.allclose(x_adv, image.detach(), atol=1e-5)


# ---------------------------------------------------------------- ensembles


@both_goals
@pytest.mark.parametrize("join", ["probabilities", "logits", "losses"])
def test_a_committee_of_equals_is_attacked_as_one(goal, join: Join):
    one, three = network(toy(1)), EnsembleModel([network(toy(1)) for _ in range(3)], join)
    attack = Liu(steps=8, rate=0.02)
    alone, together = attack(view(one, X, goal), X), attack(view(three, X, goal), X)
    assert torch.allclose(alone, together, atol=1e-5)
    assert torch.equal(one.logits(X).argmax(1), three.logits(X).argmax(1))
    others = EnsembleModel([network(toy(seed)) for seed in (1, 2, 3)], join)
    assert not torch.allclose(alone, attack(view(others, X, goal), X), atol=1e-2)


@both_goals
def test_summed_updates_of_equals_are_one_update_at_the_summed_rate(goal):
    together = Liu(steps=8, rate=0.01).ascend([view(network(toy(1)), X, goal) for _ in range(3)], X)
    alone = Liu(steps=8, rate=0.03)(view(network(toy(1)), X, goal), X)
    assert torch.allclose(together, alone, atol=1e-5)
    assert not torch.allclose(together, Liu(steps=8, rate=0.01)(view(network(toy(1)), X, goal), X), atol=1e-2)


@both_goals
def test_shares_make_the_gradient_of_the_loss_of_the_mean(goal):
    """Equation 6: the parts of all members add up to the gradient of the joined probabilities' loss."""
    several = [network(toy(seed)) for seed in (1, 2, 3)]
    joint, _ = EnsembleModel(several).gradient(X, hidden_or_found, goal)
    found = [each.gradient(X, hidden_or_found, goal) for each in several]
    shares = shares_in_mean([logits for _, logits in found], goal)
    assert torch.allclose(shares.sum(1), torch.ones(len(X), dtype=torch.float64))
    parts = [shares[:, at].view(-1, 1, 1, 1) * gradient for at, (gradient, _) in enumerate(found)]
    assert torch.allclose(torch.stack(parts).sum(0).float(), joint, atol=1e-6)
    own, mean = (
        Liu(steps=8, rate=0.01).ascend([view(each, X, goal) for each in several], X, loss)
        for loss in ("own", "of the mean")
    )
    assert not torch.allclose(own, mean, atol=1e-4)


@both_goals
def test_what_a_committee_joins_by_hand(goal):
    one, two = network(toy(1)), network(toy(2))
    first, second = one.logits(X), two.logits(X)
    mixed = EnsembleModel([one, two], "probabilities", [3, 1]).logits(X)
    assert torch.allclose(mixed.exp(), 0.75 * first.softmax(1) + 0.25 * second.softmax(1), atol=1e-6)
    assert torch.allclose(
        EnsembleModel([one, two], "logits", [3, 1]).logits(X), 0.75 * first + 0.25 * second, atol=1e-6
    )

    def loss(logits: Tensor, aims: Goal) -> Tensor:
        return aims.loss(logits)

    joint, _ = EnsembleModel([one, two], "losses", [3, 1]).gradient(X, loss, goal)
    assert torch.allclose(
        joint, 0.75 * one.gradient(X, loss, goal)[0] + 0.25 * two.gradient(X, loss, goal)[0], atol=1e-6
    )
    with pytest.raises(BadRequest, match="weights above zero"):
        EnsembleModel([one, two], "logits", [1, 0])
    with pytest.raises(BadRequest, match="joins"):
        EnsembleModel([one], "votes")  # type: ignore[arg-type]


# ---------------------------------------------------------------- distance and rays


class Ruler(nn.Module):
    """Says class 1 where the brightness of an image, on the 0 to 255 scale, lies in one of the intervals, else 0."""

    def __init__(self, *intervals: tuple[float, float]) -> None:
        super().__init__()
        self.intervals = intervals
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        bright = 255 * x.flatten(1).mean(1, keepdim=True)
        wrong = sum(((bright > low) & (bright < high)).float() for low, high in self.intervals)
        return torch.cat((1 - wrong, wrong), 1)  # type: ignore[arg-type]


def test_rmsd_by_hand():
    assert rmsd(torch.full((2, 3, 4, 4), 0.5), torch.full((2, 3, 4, 4), 0.4)).tolist() == pytest.approx([25.5, 25.5])
    x = torch.zeros(1, 3, 4, 4)
    x[0, 0, 0, 0] = 1
    assert float(rmsd(x, torch.zeros_like(x))) == pytest.approx(255 / 48**0.5)
    assert l2_of_rmsd(float(rmsd(x, torch.zeros_like(x))), 48) == pytest.approx(1)


def test_a_linear_search_finds_the_interval_that_bisection_misses():
    source, target = (LocalModel(Ruler(*ends), 2, CPU, 8) for ends in (((5, 10), (30, 300)), ((8, 9), (40, 300))))
    x, way, goal = torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2), Untargeted(torch.tensor([0]))

    def fooled(strength: float, *networks: TargetModel) -> bool:
        moved = line_search.along(x, way, strength)
        return all(int(each.logits(moved).argmax()) == 1 for each in networks)

    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if fooled(middle, source, target) else (middle, high)
    assert high == pytest.approx(40, abs=1e-3), "halving lands at the far interval"
    assert float(line_search.minimal_rmsd([source], x, way, goal)) == pytest.approx(5.1, abs=1e-3)
    assert float(line_search.minimal_rmsd([source, target], x, way, goal)) == pytest.approx(8.1, abs=1e-3)
    assert float(line_search.minimal_rmsd([source, target], x, way, goal, end=7)) == np.inf
    wrong = line_search.reached_along(target, x, way, goal, [0, 8.5, 20, 50])
    assert wrong.tolist() == [[False, True, False, True]]


def test_lines_searched_one_by_one_give_the_same_distances(monkeypatch):
    target, way = network(toy(1)), torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(3)).sign()
    found = line_search.minimal_rmsd([target], X, way, GOALS[0], step=1.0)
    monkeypatch.setattr(line_search, "VALUES_AT_ONCE", 1)
    assert torch.equal(line_search.minimal_rmsd([target], X, way, GOALS[0], step=1.0), found)
    assert len(found.unique()) > 1


def test_how_far_a_label_is_kept_along_a_line():
    target = LocalModel(Ruler((5, 10), (30, 300)), 2, CPU, 8)
    x, ones = torch.full((2, 1, 2, 2), 0.0), torch.ones(2, 1, 2, 2)
    kept = line_search.reach(target, x, torch.stack((ones[0], -ones[1])), torch.zeros(2, dtype=torch.int64), 1.0, 50.0)
    assert kept.tolist() == [6.0, np.inf]


def test_an_image_that_clipping_holds_back_is_searched_up_to_the_same_rmsd():
    """Along one of four pixels, an RMSD of 60 takes a step of 60 in unit RMS and 120 in that pixel."""
    target = LocalModel(Ruler((29, 300)), 2, CPU, 8)  # mean brightness: a quarter of the pixel's
    x, goal = torch.zeros(1, 1, 2, 2), Untargeted(torch.tensor([0]))
    way = torch.zeros(1, 1, 2, 2)
    way[..., 0, 0] = 2.0
    found = line_search.minimal_rmsd([target], x, way, goal, step=0.5, end=100.0)
    assert float(found) == pytest.approx(58.5, abs=0.6)
    assert float(line_search.minimal_rmsd([target], x, way, goal, step=0.5, end=50.0)) == np.inf
    held = torch.tensor([1.0, 0.02, 0.02, 0.02]).view(1, 1, 2, 2)  # the bright pixel is soon full; the others follow
    held = held / held.square().mean().sqrt()
    assert float(line_search.minimal_rmsd([target], x + 0.0, held, goal, step=0.5, end=100.0)) < 100


def test_regions_overlap_and_close():
    labels = {"a": np.zeros((5, 5), np.int64), "b": np.ones((5, 5), np.int64)}
    labels["a"][1:4, 1:4] = 7
    labels["b"][2:4, 1:4] = 7
    square = Regions(np.arange(-2.0, 3.0), 7, labels, {})
    assert square.overlap("a", "b") == pytest.approx(6 / 9)
    elsewhere = Regions(square.ticks, 7, {"a": labels["a"] * 0, "b": labels["b"] * 0}, {})
    assert square.overlap("a", "b", elsewhere) == 0
    assert square.closed()
    labels["b"][0, 2] = 7
    assert not square.closed()


def test_matching_strength_reaches_the_rmsd_though_the_box_cuts_it():
    way = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(3)).sign()

    def along(strength: float) -> float:
        return float(rmsd(line_search.along(X, way, strength), X).mean())

    strength = line_search.strength_for_rmsd(along, 60)
    assert strength > 62, "clipping costs something here"
    assert along(strength) == pytest.approx(60, abs=1e-3)
    with pytest.raises(BadRequest, match="cannot be reached"):
        line_search.strength_for_rmsd(along, 250)

    def by_rate(rate: float) -> float:
        return float(rmsd(Liu(steps=5, rate=rate / 255)(view(network(toy(1)), X, GOALS[0]), X), X).mean())

    assert by_rate(line_search.strength_for_rmsd(by_rate, 5, high=4.0)) == pytest.approx(5, abs=1e-2)


# ---------------------------------------------------------------- making


def dataset(images: int = 24) -> Dataset:
    x = torch.rand(images, 3, 4, 4, generator=torch.Generator().manual_seed(11))
    return as_dataset((x, network(toy(1)).logits(x).argmax(1)))


def models(*seeds: int) -> dict[str, LoadedModel]:
    modules = {f"m{seed}": toy(seed, 0.3) for seed in seeds}
    return {name: LoadedModel(name, network(each), {"weights": hash_state(each)}) for name, each in modules.items()}


def test_waves_of_photographs_are_small():
    member, threat = tuple(models(1).values()), ThreatModel(LInf(0.01))
    photographs = dataclasses.replace(dataset(), read=lambda rows: torch.zeros(len(rows), 3, 224, 224))
    assert Crafting("m1", member, Liu(), threat, dataset())._wave_size(CPU) == crafting.WAVE["cpu"]
    assert Crafting("m1", member, Liu(), threat, photographs)._wave_size(CPU) == crafting.PHOTOGRAPHS
    gpu = torch.device("cuda")
    assert Crafting("m1", member, Liu(), threat, dataset())._wave_size(gpu) == crafting.WAVE["cuda"]
    assert Crafting("m1", member, Liu(), threat, photographs)._wave_size(gpu) == crafting.PHOTOGRAPHS_ON_GPU


def test_making_keeps_the_last_image_of_every_sample_and_resumes(tmp_path, monkeypatch):
    few, whole = dataset().take(5), dataset()
    threat = ThreatModel(LInf(0.01), RandomTarget())
    monkeypatch.setattr(crafting, "WAVE", {"cpu": 4})
    member = tuple(models(1).values())
    first = Crafting("m1", member, Liu(steps=5), threat, few).examples(tmp_path / "run", NoProgress())
    assert ((first.x_adv - first.x).abs().flatten(1).amax(1) > 0.009).all(), "failures are kept as well"
    assert first.targets is not None
    assert (first.targets != first.labels).all()
    made = Crafting("m1", member, Liu(steps=5), threat, whole)
    assert made.missing(tmp_path / "run") == list(range(5, 24))
    more = made.examples(tmp_path / "run", NoProgress())
    assert torch.equal(more.x_adv[:5], first.x_adv)
    assert made.missing(tmp_path / "run") == []
    undisturbed = made.examples(tmp_path / "other", NoProgress())
    assert torch.equal(undisturbed.x_adv, more.x_adv)
    with pytest.raises(BadRequest, match="another run"):
        Crafting("m1", member, Liu(steps=6), threat, whole).examples(tmp_path / "run", NoProgress())
    with pytest.raises(BadRequest, match="liu"):
        Crafting("m1", member, FGSM(), threat, whole, join="updates")


# ---------------------------------------------------------------- the study


TINY = LiuSettings(
    models=(), sizes=Sizes(images=5, few=4, steps=3, draws=2, line_step=10.0, planes=2), grid=5, coarse=5
)


def experiment(out: Any, **changes: Any) -> LiuExperiment:
    settings = dataclasses.replace(TINY, sizes=dataclasses.replace(TINY.sizes, **changes))
    return LiuExperiment(models(1, 2, 3), dataset(), settings, out, 0)


def plan_for(it: LiuExperiment) -> Plan[LiuExperiment]:
    return Plan(tasks(it), lambda _: it)


def test_the_study_runs_from_end_to_end_and_a_second_run_computes_nothing(tmp_path, monkeypatch):
    first = plan_for(experiment(tmp_path))
    assert first.seconds() > 0
    report = write(STUDY, first.run(NoProgress()), tmp_path, draw)
    assert {table.name for table in report.tables} >= {
        "table1a",
        "table3",
        "table9",
        "table11",
        "table18",
        "table32",
        "table33",
    }
    assert [one.number for one in report.findings] == list(range(1, len(CLAIMS) + 1))
    assert all(one.published and one.because for one in report.findings)
    members = next(one for one in report.findings if "models that they were made on" in one.claim)
    assert "n = 24" in (members.measured or "")  # 4 images, 3 ensembles of 2 models
    page = (tmp_path / "study.md").read_text()
    for name in ("main", "table3", *(f"figure{number}" for number in range(1, 8))):
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 2_000
        assert f"figures/{name}.png" in page

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a finished study asked a model")

    again, other = plan_for(experiment(tmp_path)), plan_for(experiment(tmp_path, steps=4))
    monkeypatch.setattr(BatchedCalls, "_checked", forbidden)
    assert again.seconds() == 0
    same = write(STUDY, again.run(NoProgress()), tmp_path, lambda figure, path: None)
    for before, after in zip(report.tables, same.tables, strict=True):
        pd.testing.assert_frame_equal(before.frame, after.frame)
    with pytest.raises(AssertionError, match="asked a model"):
        other.run(NoProgress())


def test_a_page_leaves_out_sets_that_are_not_finished_and_refuses_to_do_without_the_others(tmp_path):
    it = experiment(tmp_path)
    made = tasks(it)
    plan = Plan(made, lambda _: it.finished(), optional=optional(made))
    places = {task.key: place for place, task in enumerate(made)}
    assert max(places["outcomes", name] for name in NEEDED) < places["measure", "gradient cosines"]
    assert places["measure", "Gaussian noise, 40"] < min(places["outcomes", one.name] for one in OTHER_OBJECTIVES)
    assert {key[1] for key in plan.optional}.isdisjoint(NEEDED)
    with pytest.raises(BadRequest, match="not finished"):
        plan.read(NoProgress())
    for task in made:
        if task.key not in plan.optional:
            task.run({}, NoProgress())
    found = plan.read(NoProgress())
    names = {one.name for one in found.settings.example_sets()}
    assert names == NEEDED
    write(STUDY, found, tmp_path / "page", lambda figure, path: None)
    page = (tmp_path / "page" / "study.md").read_text()
    assert "Not measured, to save time: untargeted optimisation, all models but one" in page
    assert page.count("not measured at this scale") >= 6
    assert {path.name for path in (tmp_path / "examples").iterdir()} == NEEDED


def test_the_sets_are_what_they_say(tmp_path):
    it = experiment(tmp_path)
    labels = it.images.labels
    for name, model in it.models.items():
        assert torch.equal(model.target.logits(it.x).argmax(1), labels), f"{name} knows every chosen image"
    paced = distances(it, ExampleSet("opt", True, True))
    assert distances(it, ExampleSet("fgs", True, True)).tolist() == pytest.approx(paced.tolist(), abs=1e-3)
    assert distances(it, ExampleSet("fg", True, True)).tolist() == pytest.approx(paced.tolist(), abs=1e-3)
    small, usual = (distances(it, ExampleSet(each, False, False)) for each in ("opt-small", "opt"))
    assert (small < 0.1 * usual).all()
    assert list(paced.index) == ["-m1", "-m2", "-m3"]
    assert [model.name for model in it.sources(ExampleSet("opt", True, True))["-m2"]] == ["m1", "m3"]
    table = measures.noise(it)
    assert table.groupby("std")["rmsd"].first().is_monotonic_increasing
    assert (table["total"] == 2 * 5).all()
    least = measures.minimal_rmsd(it)
    own = least[least["target"] == "m1"].set_index(["method", "sample"])["rmsd"]
    for _, rows in least.groupby("target"):
        assert (rows.set_index(["method", "sample"])["rmsd"] >= own - 1e-9).all(), "fooling two is no easier than one"


class HalfBlind(nn.Module):
    """Sees the upper half of an image: all gradients of the lower half are exactly zero."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.inner = toy(seed, 0.3)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.zeros_like(x)
        seen[..., :2, :] = x[..., :2, :]
        logits: Tensor = self.inner(seen)
        return logits


@pytest.mark.parametrize("blind", [False, True], ids=["sees all", "zero gradients"])
def test_every_matched_strategy_holds_its_rmsd_on_the_image_that_is_shown(tmp_path, blind):
    modules = {f"m{seed}": HalfBlind(seed) if blind else toy(seed, 0.3) for seed in (1, 2, 3)}
    named = {name: LoadedModel(name, network(each), {"weights": f"{name}{blind}"}) for name, each in modules.items()}
    x = dataset().images(slice(None))
    it = LiuExperiment(named, as_dataset((x, network(modules["m1"]).logits(x).argmax(1))), TINY, tmp_path, 0)
    assert blind == bool((it.gradient(ExampleSet("fgs", False, False), "m1") == 0).any())
    checked = 0
    for example_set in EXAMPLE_SETS:
        if example_set.method not in ("fg", "fgs"):
            continue
        for source in it.sources(example_set):
            shown = it.examples(example_set, source)
            far = float(rmsd(shown.x_adv, shown.x).mean())
            assert far == pytest.approx(it.wanted(example_set, source), rel=0.01), (example_set.name, source)
            checked += 1
    assert checked == 8 * 3


def test_the_alternative_objective_stays_at_tau_and_lambda_pulls_back():
    goal = GOALS[0]
    near, far = (
        float(rmsd(Liu(200, 0.5 / 255, 10.0, tau)(view(network(toy(1)), X, goal), X), X).mean()) for tau in (5.0, 15.0)
    )
    assert [near, far] == pytest.approx([5, 15], rel=0.01)
    free, held = (rmsd(Liu(100, 2 / 255, weight)(view(network(toy(1)), X, goal), X), X).mean() for weight in (0.0, 1.0))
    assert held < 0.8 * free
    moved = (X + 0.1 * torch.rand_like(X)).requires_grad_()
    (slope,) = torch.autograd.grad(rmsd(moved, X).sum(), moved)
    assert torch.allclose(penalty_gradient(moved.detach(), X), slope.to(X.dtype), atol=1e-4)
    assert not penalty_gradient(X, X).any(), "no direction at the clean image"
    assert torch.equal(penalty_gradient(moved.detach(), X, 255.0), -penalty_gradient(moved.detach(), X))


def test_the_reference_pair_is_of_two_families(tmp_path):
    pair = LiuExperiment(models(1, 2, 3), dataset(), TINY, tmp_path, 0, {"m1": "a", "m2": "a", "m3": "b"}).reference
    assert pair == ("m1", "m3")


def test_the_example_image_is_away_from_boundaries(tmp_path, monkeypatch):
    it = experiment(tmp_path)
    least = torch.stack([model.target.logits(it.x).softmax(1).amax(1) for model in it.models.values()]).amin(0)
    assert float(least[it.sure[0]]) >= min(0.9, float(least.max()) - 1e-6)
    edge, inner = np.full((3, 3), 7), np.zeros((3, 3), np.int64)
    inner[1, 1] = 7
    found = [Regions(np.arange(3.0), 7, {"a": labels}, {}) for labels in (edge, edge, inner, inner)]
    monkeypatch.setattr(planes, "counted_planes", lambda _: found)
    for sure, wanted in (([0, 1, 3], 3), ([0, 1], 0), ([2, 3], 2)):
        it.__dict__["sure"] = sure
        assert planes.example(it) == wanted
    wide = np.zeros((5, 5), np.int64)
    wide[1:4, 1:4] = 7
    found.append(Regions(np.arange(5.0), 7, {"a": wide}, {}))
    it.__dict__["sure"] = [0, 2, 4]
    assert planes.example(it) == 4, "the boundary is not next to the image"


def test_an_interrupted_study_goes_on_where_it_was(tmp_path, monkeypatch):
    whole, waves = Crafting._wave, list[str]()

    def stop_at_third(self, rows, on_step):
        if len(waves) == 3:
            raise Interrupted("Stopped.")
        waves.append(self.source)
        return whole(self, rows, on_step)

    it, kind = experiment(tmp_path), ExampleSet("opt", True, True)
    with monkeypatch.context() as patch:
        patch.setattr(Crafting, "_wave", stop_at_third)
        patch.setattr(crafting, "WAVE", {"cpu": 2})
        with pytest.raises(Interrupted):
            it.outcomes(kind)
    assert waves == ["-m1", "-m1", "-m1"]
    left = [len((made := it.crafting(kind, source)).missing(it.folder(kind, made))) for source in it.sources(kind)]
    assert left == [0, 5, 5]
    pd.testing.assert_frame_equal(it.outcomes(kind), experiment(tmp_path / "undisturbed").outcomes(kind))


class Restless(nn.Module):
    """Draws random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.rand(len(x), CLASSES)


def test_models_that_the_study_would_be_wrong_about_are_refused(tmp_path):
    for module, why in ((Restless().eval(), "randomized"), (Linear(torch.zeros(3, 48), torch.zeros(3)), "3 classes")):
        named = models(1, 2) | {"odd": LoadedModel("odd", network(module), {"weights": "odd"})}
        with pytest.raises(BadRequest, match=why):
            LiuExperiment(named, dataset(), TINY, tmp_path, 0).clean  # noqa: B018


def test_findings_follow_from_outcomes():
    draw = np.random.default_rng(0)
    worse, better = ((draw.random((60, 5)) < rate).astype(float) for rate in (0.3, 0.7))
    assert difference(better, worse).verdict == "holds"
    assert difference(worse, better).verdict == "does not hold"
    assert difference(worse, worse[::-1]).verdict == "cannot be said"
    assert difference(better[:5] * 0 + 1, worse[:5] * 0).verdict == "cannot be said"
    none = mean_interval(np.zeros((80, 4)))
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(0.046, abs=1e-3), "Wilson's for 0 of 80: resampling equal images says nothing"
    assert (difference(better, better).low, difference(better, better).high) == pytest.approx((-0.06, 0.06), abs=1e-3)
    found = difference(better, worse)
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(better.mean() - worse.mean())
    # planted: b reaches the aim twice on a, and a never on b; the ensemble without a reaches it once
    rows = [("b", "a", [0, 0]), ("c", "a", [1, 0]), ("-a", "a", [3, 0]), ("a", "b", [1, 1]), ("c", "b", [2, 0])]
    planted = pd.DataFrame(
        [
            {"source": source, "target": target, "sample": at, "label_rank": 9, "aim_rank": rank}
            for source, target, places in rows
            for at, rank in enumerate(places)
        ]
    )
    best, sources = best_single(planted, ["a", "b", "c"][:2], targeted=True)
    assert best.tolist() == [[1, 0], [1, 0]]
    assert sources == ["b", "a"]
    assert held_out(planted, ["a"], targeted=True).tolist() == [[0], [1]]


def test_models_by_name():
    assert choose(["resnet56", "vgg16-natural", "resnet20-pgd"]) == {
        "resnet56": "resnet56-natural",
        "vgg16": "vgg16-natural",
        "resnet20-pgd": "resnet20-pgd",
    }
    with pytest.raises(UnknownName):
        choose(["vgg16", "nobody", "resnet20"])
    with pytest.raises(BadRequest, match="at least 3"):
        choose(["vgg16", "resnet20"])
    with pytest.raises(BadRequest, match="twice"):
        choose(["vgg16", "vgg16-natural", "resnet20"])
    for settings in (FULL, FULL_ON_CPU, QUICK):
        assert len(choose(settings.models)) == 5
    assert family_of("vgg11-natural") == family_of("vgg16-natural") != family_of("resnet20-natural")
    assert [family_of(model.model) for model in PAPER_MODELS["imagenet"]].count("resnet") == 3
    assert family_of("imagenet:mobilenet-v1-1.0-224") == family_of("imagenet:mobilenet-v2-1.0-224") == "mobilenet"
    assert family_of("timm:convnext_tiny") == "convnext"


def test_a_shelf_keeps_what_was_made_from_the_same(tmp_path):
    made = []

    def make() -> pd.DataFrame:
        made.append(1)
        return pd.DataFrame({"n": [len(made)]})

    one, other = CachedTable(tmp_path, "t", ["a"]), CachedTable(tmp_path, "t", ["b"])
    assert one.get(make)["n"].tolist() == one.get(make)["n"].tolist() == [1]
    assert other.get(make)["n"].tolist() == [2]
    assert one.exists()
    assert not CachedTable(tmp_path, "t", ["c"]).exists()


def test_a_linear_models_fg_example_goes_along_its_gradient(tmp_path):
    """The direction of a set, on a model whose gradient is known: weights of the true class against the other."""
    weight = torch.randn(2, 48, generator=torch.Generator().manual_seed(1))
    linear = Linear(weight, torch.zeros(2))
    x = torch.full((4, 3, 4, 4), 0.5)
    data = as_dataset((x, torch.tensor([0, 1, 0, 1])))
    named = {name: LoadedModel(name, LocalModel(linear, 2, CPU, 8), {"weights": name}) for name in "abc"}
    it = LiuExperiment(named, data, TINY, tmp_path, 0)
    way = it.direction(ExampleSet("fg", False, False), "a")
    label = int(it.images.labels[0])
    climb = (weight[1 - label] - weight[label]).view(3, 4, 4)
    assert torch.allclose(way[0], climb / climb.square().mean().sqrt(), atol=1e-5)
    sign = it.direction(ExampleSet("fgs", False, False), "a")
    assert torch.allclose(sign[0], climb.sign(), atol=1e-6)
    assert it.crafting(ExampleSet("opt", False, False), "a").threat.norm == LInf(1.0)
    assert isinstance(it.matched_norm(ExampleSet("fg", False, False), "a", 3.0), L2)
