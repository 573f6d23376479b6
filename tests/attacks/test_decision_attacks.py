"""Attacks that see labels only: what they find, what they ask, and that no row knows of another.

The budgets in `STATED` are those within which each attack comes to within 5 % of the exact distance on linear models
of twelve values, walls of the box aside.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustassay import attacks
from robustassay.attacks.attack import Attack
from robustassay.attacks.common.boundary_search import (
    AT_ONCE,
    ATTEMPTS,
    NOISE,
    at_distance,
    bisect,
    find_start,
    onto_boundary,
    towards_clean,
)
from robustassay.attacks.common.oracle import Oracle
from robustassay.attacks.decision.geoda import _cosines, _plan
from robustassay.attacks.decision.hopskipjump import _normal
from robustassay.attacks.decision.sign_opt import SignOPT
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.registry import lookup
from robustassay.rng import Streams
from robustassay.target import DecisionAccess, NoRowsLeft, StartImages
from robustassay.threat import L2, LabelList, LInf, Norm, Targeted, ThreatModel, Untargeted
from tests.attacks.test_attacks import make_ground
from tests.support.toys import (
    Constant,
    Linear,
    Spy,
    ignore_step,
    images,
    names,
    open_access,
    open_ledger,
    open_target,
    run,
    two_classes,
)

STATED = {
    "boundary": "queries=1200",
    "evolutionary": "queries=1200",
    "geoda": "queries=2000,frequencies=12",
    "hopskipjump": "queries=2500",
    "opt": "queries=2000",
    "rays": "queries=400",
    "sign-opt": "queries=1000",
}
NAMES = sorted(STATED)
NORMS = [pytest.param(name, norm, id=f"{name}-{norm.name}") for name in NAMES for norm in lookup("attack", name).norms]
every_attack = pytest.mark.parametrize("name", NAMES)
every_norm = pytest.mark.parametrize(("name", "norm"), NORMS)
targeted_or_not = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


class Net(nn.Module):
    """A small network with fixed random weights, curved enough to have several boundaries."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.first = nn.Parameter(torch.randn(24, 3 * 5 * 6, generator=draw) / 4)
        self.second = nn.Parameter(torch.randn(4, 24, generator=draw))
        self.bias = nn.Parameter(torch.zeros(4))
        self.eval()
        self.bias.data -= self(torch.rand(200, 90, generator=draw)).mean(0)  # so that no class is rare

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu((x - 0.5).flatten(1) @ self.first.T) @ self.second.T + self.bias


class Coin(nn.Module):
    """Answers by chance, so that nothing an attack believes is true for long."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3))
        self.draw = torch.Generator().manual_seed(0)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.bias + torch.rand(len(x), 3, generator=self.draw)


class Shy(nn.Module):
    """Says 1 close to one picture and 0 everywhere else: no noise ever finds it."""

    def __init__(self, picture: Tensor) -> None:
        super().__init__()
        self.picture = nn.Parameter(picture)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        apart = (x - self.picture).flatten(1).abs().mean(1)
        return torch.stack((apart - 0.1, 0 * apart), 1)


@final
@dataclass(frozen=True)
class StartOnly(Attack[DecisionAccess]):
    """Finds a start, brings it to the boundary, and rests."""

    access = DecisionAccess
    norms = (L2, LInf)
    seeks_minimum = True

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        oracle = Oracle.of(view, 500)
        return onto_boundary(oracle, find_start(oracle), 1e-4)


@final
@dataclass(frozen=True)
class Nothing(Attack[DecisionAccess]):
    access = DecisionAccess
    norms = (L2, LInf)
    seeks_minimum = True

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        return x0


def targets(rows: int, label: int) -> LabelList:
    return LabelList(dict.fromkeys(names(rows), label))


# ---------------------------------------------------------------- what they find


def check_converges(attack: Attack[Any], norm: type[Norm], targeted: bool, in_box: bool, reach: float) -> None:
    ground = make_ground(norm, 12, targeted, in_box=in_box, rows=4)
    records, _ = run(ground.model, attack, norm(1), ground.x, ground.labels, target=ground.target)
    found = records["distance"].to_numpy(float, na_value=np.inf) / ground.distance
    assert (found >= 1 - 1e-5).all(), "nothing is nearer than the nearest"
    assert (found <= reach).all(), f"too far: {found}"


@targeted_or_not
@every_norm
def test_the_exact_distance_is_met_within_the_stated_budget(name: str, norm: type[Norm], targeted: bool) -> None:
    check_converges(attacks.create(f"{name}:{STATED[name]}"), norm, targeted, in_box=False, reach=1.05)


@every_norm
def test_the_walls_of_the_box_are_followed(name: str, norm: type[Norm]) -> None:
    """Boundary goes by random steps, and of those into a wall only the part that leads away from it counts."""
    reach = 2.5 if name == "boundary" else 1.05
    check_converges(attacks.create(f"{name}:{STATED[name]}"), norm, False, in_box=True, reach=reach)


@pytest.mark.parametrize("attack", [StartOnly(), Nothing()], ids=["start only", "nothing"])
@pytest.mark.parametrize("norm", [L2, LInf])
def test_the_check_fails_an_attack_that_does_not_search(norm: type[Norm], attack: Attack[Any]) -> None:
    with pytest.raises(AssertionError, match="too far"):
        check_converges(attack, norm, False, in_box=False, reach=1.05)


@every_norm
def test_a_curved_model_is_broken_far_nearer_than_by_the_start(name: str, norm: type[Norm]) -> None:
    net, x = Net(), images(4, (3, 5, 6), low=0.1, high=0.9)
    labels = net(x).argmax(1)
    settings = "queries=600" + (",frequencies=6" if name == "geoda" else "")
    start, _ = run(net, StartOnly(), norm(1), x, labels)
    found, _ = run(net, attacks.create(f"{name}:{settings}"), norm(1), x, labels)
    assert found["valid"].all()
    assert (found["distance"] < start["distance"]).mean() >= 0.75
    assert found["distance"].median() < (0.9 if name == "opt" else 0.7) * start["distance"].median()


# ---------------------------------------------------------------- what they may see, and how much they ask


@every_attack
def test_they_see_labels_by_type_and_seek_the_minimum(name: str) -> None:
    kind = lookup("attack", name)
    assert kind.access is DecisionAccess
    assert not hasattr(DecisionAccess, "scores")
    assert not hasattr(DecisionAccess, "gradient")
    assert kind.seeks_minimum
    assert kind().queries == 20_000


@pytest.mark.parametrize("own", [False, True], ids=["the run's budget", "its own"])
@pytest.mark.parametrize("budget", [1, 2, 90])
@every_attack
def test_a_budget_is_met_exactly_with_the_start_in_it(name: str, budget: int, own: bool) -> None:
    """Every distinct image the model received counts as a query; all lie in the pixel box."""
    spy, x = Spy(two_classes(12, seed=12, margin=0.1)), images(3, (12,), low=0.0, high=1.0)
    for image in x.split(1):
        goal = Untargeted(spy.module(image).argmax(1))
        limit = None if own else budget
        books = open_ledger(lookup("attack", name).norms[0](1), image, goal, seeks_minimum=True, query_budget=limit)
        box = open_access(DecisionAccess, spy, books)
        spy.seen.clear()
        with pytest.raises(NoRowsLeft):
            attacks.create(f"{name}:queries={budget}" if own else name)(box, image)
        points = torch.cat(spy.seen)
        assert points.min() >= 0
        assert points.max() <= 1
        assert books.queries.tolist() == [budget]
        assert budget * 0.6 < len({tuple(point.tolist()) for point in points}) <= budget


@every_attack
def test_rows_whose_budgets_differ_are_cut_each_at_its_own(name: str) -> None:
    """Purses differ when an evaluation goes on where rows have spent unequal parts."""
    model, x = two_classes(12, seed=12, margin=0.1), images(4, (12,))
    books = open_ledger(
        lookup("attack", name).norms[0](1), x, Untargeted(model(x).argmax(1)), seeks_minimum=True, query_budget=200
    )
    books.queries += torch.tensor([0, 199, 60, 137])
    with pytest.raises(NoRowsLeft):
        attacks.create(name)(open_access(DecisionAccess, model, books), x)
    assert books.queries.tolist() == [200] * 4


@targeted_or_not
@every_attack
def test_a_row_without_a_start_stops(name: str, targeted: bool) -> None:
    x, norm = images(3, (6,)), lookup("attack", name).norms[0]
    labels = torch.zeros(3, dtype=torch.int64)
    records, x_adv = run(
        Constant(), attacks.create(name), norm(1), x, labels, target=targets(3, 2) if targeted else None
    )
    assert not records["claimed"].any()
    assert records["queries"].tolist() == [ATTEMPTS * (5 if name == "rays" else 1)] * 3
    assert torch.equal(x_adv, x)


@targeted_or_not
@every_norm
def test_an_oracle_of_chance_ends_within_the_budget(name: str, norm: type[Norm], targeted: bool) -> None:
    x, labels = images(4, (12,)), torch.zeros(4, dtype=torch.int64)
    target = targets(4, 2) if targeted else None
    # With other seeds chance may finish every row early: a clean image that reaches the goal needs no more queries.
    records, _ = run(Coin(), attacks.create(name), norm(1), x, labels, target=target, query_budget=150, seed=1)
    assert (records["queries"] <= 150).all()
    assert records["queries"].max() == 150


# ---------------------------------------------------------------- where they start


def first_points(name: str, model: nn.Module, x: Tensor, labels: Tensor, target: int | None = None) -> list[Tensor]:
    """Return what is asked about the first image, in order, its mates being there for their pixels only."""
    spy = Spy(model)
    goal = Untargeted(labels) if target is None else Targeted(torch.full_like(labels, target))
    books = open_ledger(lookup("attack", name).norms[0](1), x, goal, seeks_minimum=True, query_budget=40)
    first, pool = torch.zeros(1, dtype=torch.int64), StartImages.of(x, labels)
    network, rng = open_target(spy, x), Streams.of(0, names(1))
    box = DecisionAccess(network, books, rng, first, ignore_step, pool, inner=True)
    spy.seen.clear()
    attacks.create(name)(box, box.ball.centre)
    return [batch[0] for batch in spy.seen]  # a call holds one point and its padding until there is a start


def is_one_of(point: Tensor, pictures: Tensor) -> bool:
    return bool((pictures == point).flatten(1).all(1).any())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rays"])
def test_a_chosen_class_is_approached_from_an_image_of_it(name: str) -> None:
    x, labels = images(6, (3, 4, 4), low=0, high=1), torch.tensor([0, 1, 2, 1, 2, 0])
    points = first_points(name, Linear(torch.zeros(3, 48), torch.tensor([0.0, 0, 1])), x, labels, target=2)
    assert is_one_of(points[0], x[labels == 2]), "an image of class 2"
    missed = first_points(name, Constant(), x, labels, target=2)
    assert all(is_one_of(point, x[labels == 2]) for point in missed[:10])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rays"])
def test_any_wrong_class_is_approached_from_noise_then_from_images(name: str) -> None:
    x, labels = images(6, (3, 4, 4), low=0, high=1), torch.tensor([0, 1, 2, 1, 2, 0])
    points = first_points(name, Constant(), x, labels)
    assert not any(is_one_of(point, x) for point in points[:NOISE])
    assert all(is_one_of(point, x[labels != 0]) for point in points[NOISE : NOISE + 5])


@every_attack
def test_a_class_that_noise_never_meets_is_still_found(name: str) -> None:
    x = images(6, (3, 4, 4), low=0, high=1)
    shy = Shy(x[1] if name != "rays" else ((x[0] + (x[1] - x[0]).sign() / 4).clamp(0, 1)))
    norm = lookup("attack", name).norms[0]
    records, _ = run(shy, attacks.create(f"{name}:queries=300"), norm(1), x, shy(x).argmax(1), ids=names(6))
    assert records["valid"][0]
    assert records["claimed_at_query"][0] >= NOISE


# ---------------------------------------------------------------- rows by themselves


def attack_rows(attack: Attack[Any], norm: type[Norm], rows: list[int], targeted: bool) -> tuple[Any, Tensor]:
    """Attack some of six images; all six are there to start from, as they are when a run is cut into waves."""
    net, x = Net(), images(40, (3, 5, 6), low=0, high=1)
    labels = net(x).argmax(1)
    common = labels.mode().values
    six = torch.cat(((labels == common).nonzero()[:5], (labels != common).nonzero()[:1])).squeeze(1)
    x, labels = x[six], labels[six]
    wave = Wave([names(6)[row] for row in rows], x[rows], labels[rows], StartImages.of(x, labels))
    threat = ThreatModel(norm(1), targets(6, int(labels[5])) if targeted else None)
    records, x_adv = run_wave(open_target(net, x), attack, threat, wave, 0, None, ignore_step)
    return records.to_pandas(), x_adv


@targeted_or_not
@every_norm
def test_a_row_alone_gets_what_it_gets_in_company(name: str, norm: type[Norm], targeted: bool) -> None:
    attack = attacks.create(f"{name}:queries=200")
    together, together_adv = attack_rows(attack, norm, [0, 1, 2, 3, 4], targeted)
    assert together["claimed"].all()
    for row in (1, 4):
        alone, alone_adv = attack_rows(attack, norm, [row], targeted)
        assert torch.equal(alone_adv[0], together_adv[row])
        for column in ("distance", "queries", "claimed_at_query", "iterations", "label"):
            assert alone[column][0] == together[column][row]


@every_attack
def test_two_rows_of_one_image_go_their_own_ways(name: str) -> None:
    """Same pixels, other streams: what is drawn belongs to the row."""
    net, x = Net(), images(1, (3, 5, 6)).repeat(2, 1, 1, 1)
    norm = lookup("attack", name).norms[0]
    _, x_adv = run(net, attacks.create(f"{name}:queries=60"), norm(1), x, net(x).argmax(1))
    if name == "rays":
        assert torch.equal(x_adv[0], x_adv[1]), "nothing is drawn where all ones reach the goal"
    else:
        assert not torch.equal(x_adv[0], x_adv[1])


# ---------------------------------------------------------------- what they share


def open_oracle(model: nn.Module, norm: Norm, x: Tensor, queries: int, budget: int | None = None) -> Oracle:
    books = open_ledger(norm, x, Untargeted(model(x).argmax(1)), seeks_minimum=True, query_budget=budget)
    return Oracle.of(open_access(DecisionAccess, model, books), queries)


@pytest.mark.parametrize("budget", [None, 5])
def test_an_oracle_answers_no_where_the_budget_is_spent(budget: int | None) -> None:
    """Every point here reaches the goal, so a no is a point that was not sent; the run's budget goes first."""
    spy = Spy(Linear(torch.zeros(2, 4), torch.tensor([0.0, 1.0])))
    x = images(3, (4,))
    books = open_ledger(
        L2(1), x, Untargeted(torch.zeros(3, dtype=torch.int64)), seeks_minimum=True, query_budget=budget
    )
    oracle = Oracle.of(open_access(DecisionAccess, spy, books), 5 if budget is None else 99)
    spy.seen.clear()
    assert oracle.subset(torch.tensor([False, True, False])).reaches(x[1:2]).tolist() == [True]
    assert oracle.left.tolist() == [5, 4, 5]
    assert oracle.reaches(x[:, None].repeat(1, 3, 1) + 9).all()
    assert torch.cat(spy.seen).max() == 1, "clipped before it is sent"
    assert oracle.reaches(x[:, None].repeat(1, 3, 1)).tolist() == [
        [True, True, False],
        [True, False, False],
        [True, True, False],
    ]
    assert not oracle.reaches(x).any()
    assert books.queries.tolist() == [5, 5, 5]
    with pytest.raises(NoRowsLeft):
        oracle.drop_finished(x)


def test_bisection_ends_at_the_crossing_from_above() -> None:
    """Along the first axis the label changes at 0.7."""
    model = Linear(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0.7, 0.0]))
    oracle = open_oracle(model, L2(1), torch.tensor([[0.2, 0.5], [0.6, 0.5]]), 1000)
    centre = oracle.view.ball.centre
    ends = onto_boundary(oracle, torch.ones(2, 2), 1e-5)
    assert ((ends[:, 0] > 0.7) & (ends[:, 0] < 0.7001)).all()
    assert (1000 - oracle.left).tolist() == [17, 17]
    many = torch.ones(2, 3, dtype=torch.float64)

    def path(t: Tensor) -> Tensor:
        return centre[:, None] + t[..., None].float() * torch.tensor([[0.8, 0.0], [0.6, 0.0], [0.5, 0.0]])

    found = bisect(oracle, path, 0 * many, many, 1e-3)
    assert found[0].tolist() == pytest.approx([0.5 / 0.8, 0.5 / 0.6, 1.0], abs=2e-3)
    assert found[1].tolist() == pytest.approx([0.1 / 0.8, 0.1 / 0.6, 0.1 / 0.5], abs=2e-3)


def test_a_cut_towards_the_clean_image_is_the_linf_path() -> None:
    oracle = open_oracle(two_classes(4), LInf(1), torch.full((1, 4), 0.5), 10)
    path = towards_clean(oracle.view, torch.tensor([[0.9, 0.6, 0.5, 0.1]]))
    expected = torch.tensor([[0.7, 0.6, 0.5, 0.3]])
    assert torch.allclose(path(torch.tensor([0.5], dtype=torch.float64)), expected)


def test_a_direction_is_followed_along_the_walls_at_its_exact_length() -> None:
    x = torch.cat((images(2, (30,), low=0, high=1), torch.ones(1, 30)))
    oracle = open_oracle(two_classes(30), L2(1), x, 10)
    direction = torch.randn(3, 4, 30, generator=torch.Generator().manual_seed(0))
    size = torch.tensor([[0.1, 0.5, 1.0, 1.5]], dtype=torch.float64).repeat(3, 1)
    points = at_distance(oracle.view, direction, size)
    assert points.min() >= 0
    assert points.max() <= 1
    np.testing.assert_allclose((points - x[:, None]).double().norm(dim=-1), size, rtol=1e-5)
    moved = points - x[:, None]
    ratio = moved / direction
    free = (points > 0) & (points < 1)
    for row in range(3):
        for k in range(4):
            scale = ratio[row, k][free[row, k]]
            assert torch.allclose(scale, scale.max(), rtol=1e-3), "values off the walls keep the direction"
            assert (moved[row, k] * direction[row, k] >= 0).all()


# ---------------------------------------------------------------- normals from labels


def one_bit_cosine(values: int, probes: int) -> float:
    """What the mean of gaussian directions, each with the sign of its part along the normal, can be expected to give.

    Along the normal they add E|z| = sqrt(2 / pi); across it, probes of variance one in every direction average out.
    """
    return 1 / math.sqrt(1 + math.pi * values / (2 * probes))


def cosines(estimate: Tensor, normal: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(estimate.flatten(1), normal.flatten()[None])


def on_a_plane(rows: int, values: int, norm: Norm) -> tuple[Oracle, Tensor, Tensor]:
    """Points on the boundary of a linear model, well inside the box, and the normal there."""
    model = two_classes(values, seed=5, margin=0.0)
    normal = (model.weight[1] - model.weight[0]).detach()
    x = images(rows, (values,), low=0.45, high=0.55)
    logits = model(x).detach()
    x_b = x + (logits[:, 0] - logits[:, 1])[:, None] * normal / normal.square().sum()
    x0 = x_b - 0.3 * normal / normal.norm()
    return open_oracle(model, norm, x0, 10_000), x_b, normal


def test_hopskipjump_estimates_the_normal_as_well_as_labels_allow() -> None:
    oracle, x, normal = on_a_plane(40, 60, L2(1))
    found = cosines(_normal(oracle, x, torch.full((40,), 0.01), 200), normal)
    assert found.mean().item() == pytest.approx(one_bit_cosine(60, 200), rel=0.05)


def test_geoda_estimates_the_normal_as_well_as_labels_allow() -> None:
    oracle, x, normal = on_a_plane(40, 60, L2(1))
    attack = attacks.create("geoda:frequencies=60,sigma=0.001")
    estimate = attack._estimate(oracle, x, torch.full((40,), 200))  # type: ignore[attr-defined]
    assert cosines(estimate, normal).mean().item() == pytest.approx(one_bit_cosine(60, 200), rel=0.05)


def test_sign_opt_estimates_the_slope_across_the_direction() -> None:
    """Turning towards the normal shortens the way; the estimate must point against it, within the tangent plane."""
    oracle, _, normal = on_a_plane(40, 60, L2(1))
    unit_normal = normal / normal.norm()
    side = torch.randn(40, 60, generator=torch.Generator().manual_seed(1))
    side -= (side @ unit_normal)[:, None] * unit_normal
    direction = unit_normal + 0.5 * side / side.norm(dim=1, keepdim=True)
    direction /= direction.norm(dim=1, keepdim=True)
    distance = 0.3 / (direction @ unit_normal).double()
    slope = SignOPT(probes=200)._estimate_gradient(
        oracle, direction, distance, torch.full((40,), 1e-2, dtype=torch.float64)
    )
    uphill = -(unit_normal - (direction @ unit_normal)[:, None] * direction)
    across = slope - (slope * direction).sum(1, keepdim=True) * direction
    found = torch.nn.functional.cosine_similarity(across, uphill)
    assert found.mean().item() == pytest.approx(one_bit_cosine(59, 200), rel=0.08)


def test_geoda_waves_are_orthonormal_and_its_plan_spends_the_budget() -> None:
    waves = _cosines(9, 9)
    assert torch.allclose(waves @ waves.T, torch.eye(9), atol=1e-5)
    assert len(_cosines(32, 10)) == 10
    for budget in (100, 1000, 20_000):
        plan = _plan(budget, 0.6)
        assert all(late >= early for early, late in itertools.pairwise(plan))
        assert all(count % AT_ONCE == 0 for count in plan)
        assert abs(sum(plan) + 25 * len(plan) - budget) <= 13 * len(plan)
