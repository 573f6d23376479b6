"""FMN and EAD on models whose nearest adversarial point is known, and beside foolbox's.

FMN must come within 1 % of the exact distance on linear models, and 5 % on a curved one. EAD seeks another point, the
least squared L2 + lambda * L1, and its shrinkage by beta a step of length rate makes lambda = beta / rate, growing as
the rate decays. So its L1 lies between the exact one and that of the elastic-net optimum at the first rate, which has
a closed form on linear models; 2 % are allowed for its grid, as each value moves by thousandths.
"""

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from torch import Tensor, nn

import robustassay as ra
from robustassay import attacks, data
from robustassay.attacks.nearest import ead_fast
from robustassay.threat import L0, L1, L2, LabelList, LInf, Norm, TargetRule
from tests.support.toys import (
    Constant,
    Linear,
    Numbers,
    Spy,
    distances,
    images,
    names,
    run,
    targeted_distances,
    two_classes,
)

ROWS = 6
both_goals = pytest.mark.parametrize(
    "targeted", [pytest.param(False, id="untargeted"), pytest.param(True, id="targeted", marks=pytest.mark.long)]
)
LARGEST = {LInf: 1.0, L2: 30.0, L1: 3072.0, L0: 3072.0}
every_ead = pytest.mark.parametrize("name", ["ead", "ead-fast"])
fmn_norms = pytest.mark.parametrize("norm", [LInf, L2, L1, L0], ids=lambda norm: norm.name)


def goal_of(targeted: bool, rows: int = ROWS) -> TargetRule | None:
    return LabelList(dict.fromkeys(names(rows), 1)) if targeted else None


def linear_ground(norm: type[Norm], targeted: bool, low: float, high: float) -> tuple[Linear, Tensor, Tensor, Numbers]:
    """Images of class 0 under a random linear model, with their exact distances to class 1."""
    model = two_classes(30, seed=5, margin=1.5, dead=1)
    x = images(40, (30,), seed=1, low=low, high=high)
    zero = torch.zeros(len(x), dtype=torch.int64)
    x = x[model(x).argmax(1) == 0]
    exact = (
        targeted_distances(model, x, zero[: len(x)] + 1, norm.name)
        if targeted
        else distances(model, x, zero[: len(x)], norm.name)
    )
    possible = torch.from_numpy(np.isfinite(exact) & (exact > 0))
    return model, x[possible][:ROWS], zero[:ROWS], exact[possible.numpy()][:ROWS]


# ---------------------------------------------------------------- known answers


@pytest.mark.parametrize(("low", "high"), [(0.35, 0.65), (0.0, 1.0)], ids=["grey", "near the walls"])
@both_goals
@fmn_norms
def test_fmn_finds_the_exact_distance_of_linear_models(
    norm: type[Norm], targeted: bool, low: float, high: float
) -> None:
    model, x, labels, exact = linear_ground(norm, targeted, low, high)
    assert len(x) == ROWS
    records, x_adv = run(model, attacks.create("fmn"), norm(LARGEST[norm]), x, labels, target=goal_of(targeted))
    assert records["success"].all()
    if norm is L0:
        assert records["distance"].tolist() == exact.tolist()
        assert ((x_adv != x).sum(1).numpy() == exact).all()
    else:
        assert (records["distance"] <= 1.01 * exact).all()
        assert (records["distance"] >= (1 - 1e-5) * exact).all(), "nothing is nearer than the nearest"


@pytest.mark.parametrize(
    ("low", "high"),
    [pytest.param(0.35, 0.65, id="grey", marks=pytest.mark.long), pytest.param(0.0, 1.0, id="near the walls")],
)
@both_goals
@every_ead
def test_ead_finds_the_elastic_net_optimum_of_linear_models(name: str, targeted: bool, low: float, high: float) -> None:
    model, x, labels, exact = linear_ground(L1, targeted, low, high)
    records, _ = run(model, attacks.create(f"{name}:steps=200"), L1(30), x, labels, target=goal_of(targeted))
    optimum = np.array([elastic_net_optimum(model, image, 1e-3 / 0.01) for image in x])
    assert (optimum > 1.02 * exact).all(), "the two must differ, or this tests less than it says"
    assert records["success"].all()
    assert (records["distance"] <= 1.02 * optimum).all()
    assert (records["distance"] >= (1 - 1e-5) * exact).all()


@every_ead
def test_ead_keeps_the_best_point_by_both_rules_of_one_run(name: str) -> None:
    """The exact move of the elastic net is not met: shrinkage by beta a step makes a net that is ten times tighter."""
    model, x, labels, _ = linear_ground(L1, False, 0.0, 1.0)
    beta = 1e-3
    records, x_adv = run(model, attacks.create(f"{name}:steps=100,beta={beta}"), L1(30), x, labels)
    by_net = [row[0] for row in records["other_objectives"]]
    assert [len(row) for row in records["other_objectives"]] == [1] * ROWS
    assert all(point["objective"] == "elastic-net" and point["valid"] for point in by_net)
    net = np.array([point["L2"] ** 2 + beta * point["L1"] for point in by_net])
    delta = (x_adv - x).double().numpy()
    of_l1_rule = (delta**2).sum(1) + beta * np.abs(delta).sum(1)
    assert (net <= of_l1_rule * (1 + 1e-9)).all()
    assert (net / of_l1_rule).mean() < 0.9, "the rules must choose different points, or this tests less than it says"
    assert (np.array([point["L1"] for point in by_net]) >= records["distance"] * (1 - 1e-9)).all()
    exact = [elastic_net_move(model, image, beta) for image in x]
    least = np.array([(move**2).sum() + beta * move.sum() for move in exact])
    assert (net >= (1 - 1e-5) * least).all()
    assert (net <= 1.35 * least).all()
    widest = np.array([point["Linf"] for point in by_net])
    assert ([move.max() for move in exact] <= widest * (1 + 1e-5)).all()
    assert (widest <= np.abs(delta).max(1) * (1 + 1e-9)).all()


def test_only_attacks_with_other_rules_record_points_by_them() -> None:
    x, labels = images(3, (1, 4, 4)), torch.zeros(3, dtype=torch.int64)
    stands, _ = run(Constant(), attacks.create("ead:steps=5"), L1(1), x, labels)
    assert [len(row) for row in stands["other_objectives"]] == [0, 0, 0]
    lost, _ = run(Constant(), attacks.create("ead:steps=5"), L1(1), x, labels + 1)
    assert [row[0]["L1"] for row in lost["other_objectives"]] == [0.0] * 3, (
        "wrong from the start, at no cost by any rule"
    )
    other, _ = run(Constant(), attacks.create("fmn:steps=5"), L1(1), x, labels)
    assert other["other_objectives"].isna().all()


class TwoFaced(Linear):
    """Denies everything in a batch as large as those of the verification."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return torch.stack((torch.ones(len(x)), torch.zeros(len(x))), 1) if len(x) == 32 else logits


def test_points_by_other_rules_are_verified_too() -> None:
    model = TwoFaced(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0.6, 0.0]))
    records, x_adv = run(
        model, attacks.create("ead:steps=50,search_steps=5"), L1(1), torch.full((1, 2), 0.5), torch.tensor([0])
    )
    assert records["valid"].tolist() == [False]
    assert not any(point["valid"] for point in records["other_objectives"][0])
    assert not records["success"].any()
    assert torch.equal(x_adv, torch.full((1, 2), 0.5))


def elastic_net_optimum(model: Linear, image: Tensor, shrinkage: float) -> float:
    """L1 size of the move from class 0 to 1 with least squared L2 + shrinkage * L1."""
    return float(elastic_net_move(model, image, shrinkage).sum())


def elastic_net_move(model: Linear, image: Tensor, shrinkage: float) -> Numbers:
    """How far each value goes in the move of least squared L2 + shrinkage * L1, by its stationarity."""
    weight, bias, flat = (t.detach().double().numpy() for t in (model.weight, model.bias, image))
    climb = weight[1] - weight[0]
    need, room = bias[0] - bias[1] - climb @ flat, np.where(climb > 0, 1 - flat, flat)

    def move(level: float) -> Numbers:
        moved: Numbers = np.clip((level * np.abs(climb) - shrinkage) / 2, 0, room)
        return moved

    return move(brentq(lambda level: np.abs(climb) @ move(level) - need, 0, 1e4, xtol=1e-14))


class Quadratic(nn.Module):
    """Class 1 wins outside an ellipsoid around a centre."""

    def __init__(self, axes: Tensor, centre: Tensor) -> None:
        super().__init__()
        self.axes, self.centre = nn.Parameter(axes), nn.Parameter(centre)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        outside = (self.axes * (x - self.centre).square()).sum(1) - 1
        return torch.stack((torch.zeros_like(outside), outside), 1)


def nearest_on_the_ellipsoid(norm: type[Norm], axes: Numbers, centre: Numbers, x: Numbers) -> float:
    """By a general solver, from many starts. For L1 and Linf a move is written as p - q, which makes them smooth."""
    n, draw = len(x), np.random.default_rng(0)
    sizes: dict[type[Norm], Any] = {
        L2: lambda v: np.square(v[:n] - v[n:-1]).sum(),
        L1: lambda v: v[:-1].sum(),
        LInf: lambda v: v[-1],
    }
    constraints = [
        {"type": "ineq", "fun": lambda v: (axes * np.square(x + v[:n] - v[n:-1] - centre)).sum() - 1},
        {"type": "ineq", "fun": lambda v: np.concatenate((x + v[:n] - v[n:-1], 1 - (x + v[:n] - v[n:-1])))},
        {"type": "ineq", "fun": lambda v: v[-1] - v[:n] - v[n:-1]},
    ]
    best = np.inf
    for _ in range(15):
        start = np.append(draw.random(2 * n) * 0.3, 0.5)
        found = minimize(sizes[norm], start, bounds=[(0, 1)] * (2 * n + 1), constraints=constraints)
        if found.success:
            best = min(best, float(found.fun))
    return float(np.sqrt(best)) if norm is L2 else best


@pytest.mark.parametrize(
    ("name", "norm", "reach"),
    [
        ("fmn", LInf, 1.05),
        ("fmn", L2, 1.05),
        ("fmn", L1, 1.05),
        pytest.param("ead:steps=300", L1, 1.15, marks=pytest.mark.long),
        ("ead-fast:steps=300", L1, 1.15),
    ],
)
def test_the_distance_to_a_curved_boundary_agrees_with_a_general_solver(
    name: str, norm: type[Norm], reach: float
) -> None:
    """The boundary curves away from the image, so the nearest point is no single gradient step away."""
    draw = np.random.default_rng(3)
    axes, centre = draw.uniform(4, 16, 4), np.full(4, 0.5)
    x = centre + draw.uniform(-0.08, 0.08, (4, 4))
    model = Quadratic(torch.tensor(axes).float(), torch.tensor(centre).float())
    records, _ = run(
        model, attacks.create(name), norm(LARGEST[norm]), torch.tensor(x).float(), torch.zeros(4, dtype=torch.int64)
    )
    exact = np.array([nearest_on_the_ellipsoid(norm, axes, centre, image) for image in x])
    assert records["success"].all()
    assert (records["distance"] <= reach * exact).all()
    assert (records["distance"] >= (1 - 1e-4) * exact).all()


def test_fmn_gets_across_a_boundary_where_a_tie_is_lost() -> None:
    """On the boundary itself the first-order guess says there is no way to go, yet the label has not changed."""
    model = Linear(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0.75, 0.0]))
    for norm, exact in ((LInf, 0.25), (L2, 0.25), (L1, 0.25), (L0, 1.0)):
        records, _ = run(model, attacks.create("fmn"), norm(LARGEST[norm]), torch.full((1, 2), 0.5), torch.tensor([0]))
        assert records["distance"].tolist() == [pytest.approx(exact, rel=0.01)]


# ---------------------------------------------------------------- what must not happen


@fmn_norms
def test_fmn_stays_in_a_ball_that_follows_the_distance(norm: type[Norm]) -> None:
    """A projection that never projects (foolbox) or only rescales (adv-lib) leaves points at the step's length."""
    model, x, labels, exact = linear_ground(norm, False, 0.35, 0.65)
    spy = Spy(model)
    run(spy, attacks.create("fmn"), norm(LARGEST[norm]), x, labels)
    on_its_way = spy.seen[2:102]  # after two looks at the clean images, before the verification
    sizes = np.array([float(norm(1).size(batch[0] - x[0])) for batch in on_its_way])
    assert (sizes <= 4 * exact[0] + 1).all(), "every point is inside a ball that follows the distance"
    assert np.median(sizes[50:]) <= 1.05 * exact[0] + (norm is L0)


@pytest.mark.parametrize(
    ("name", "norm"),
    [*(("fmn:steps=20", norm) for norm in (LInf, L2, L1, L0)), ("ead:steps=30", L1), ("ead-fast:steps=30", L1)],
)
def test_a_failed_sample_is_the_clean_image_and_no_success(name: str, norm: type[Norm]) -> None:
    """foolbox's EAD returns a black image, and asks the model what it thinks of that."""
    x = images(3, (1, 4, 4))
    records, x_adv = run(Constant(), attacks.create(name), norm(LARGEST[norm]), x, torch.zeros(3, dtype=torch.int64))
    assert not records["success"].any()
    assert not records["claimed"].any()
    assert records["distance"].isna().all()
    assert torch.equal(x_adv, x)


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        *(("fmn:steps=25", norm) for norm in (LInf, L2, L1)),
        ("fmn", L0),
        ("ead:steps=20", L1),
        ("ead-fast:steps=20", L1),
    ],
)
def test_a_row_alone_gets_the_bits_it_gets_in_a_batch(name: str, norm: type[Norm], small_net: nn.Module) -> None:
    x = data.load("cifar10-1k").images(list(range(5)))
    labels = small_net(x).argmax(1)
    together, together_adv = run(small_net, attacks.create(name), norm(LARGEST[norm]), x, labels)
    assert together["claimed"].any()
    for row in range(5):
        one = slice(row, row + 1)
        alone, alone_adv = run(
            small_net, attacks.create(name), norm(LARGEST[norm]), x[one], labels[one], ids=names(5)[one]
        )
        assert torch.equal(alone_adv, together_adv[one])
        for column in ("distance", "queries", "iterations", "claimed_at_query"):
            assert alone[column].tolist() == together[column][one].tolist() or alone[column].isna().all()


HALVED = 2 * 8 + 1
"""Queries of ead-fast's last bisections, towards two points, and of the point that every attack returns."""


def test_ead_fast_lets_a_row_rest_when_it_makes_no_progress() -> None:
    """Its mates go on: a batch-wide rule (foolbox, torchattacks) lets them decide for each other."""
    x, labels = images(4, (6,)), torch.zeros(4, dtype=torch.int64)
    still, _ = run(Constant(), attacks.create("ead-fast:steps=50,search_steps=3"), L1(1), x, labels)
    assert still["queries"].tolist() == [1 + 3 * 20 + HALVED] * 4, "no c moves a pixel: two windows each"
    whole, _ = run(Constant(), attacks.create("ead-fast:steps=50,search_steps=3,abort_early=false"), L1(1), x, labels)
    assert whole["queries"].tolist() == [1 + 3 * 50 + HALVED] * 4
    assert whole["backwards"].tolist() == [1 + 3 * 50] * 4


def test_ead_makes_two_passes_per_step_and_stops_rows_that_make_no_progress() -> None:
    """A gradient at the look-ahead point and the scores of the new point; on a flat model the second check stops it."""
    x, labels = images(4, (6,)), torch.zeros(4, dtype=torch.int64)
    still, _ = run(Constant(), attacks.create("ead:steps=120,search_steps=2"), L1(1), x, labels)
    assert still["backwards"].tolist() == [2 * 101] * 4, "steps 0 to 100, checked at 0 and 100"
    assert still["queries"].tolist() == [2 * 101 * 2 + 1] * 4, "and the point that every attack returns"
    whole, _ = run(Constant(), attacks.create("ead:steps=120,search_steps=2,abort_early=false"), L1(1), x, labels)
    assert whole["backwards"].tolist() == [2 * 120] * 4
    assert whole["queries"].tolist() == [2 * 120 * 2 + 1] * 4


@pytest.mark.parametrize("kappa", [0.5, pytest.param(2.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["ead", "ead-fast"])
def test_ead_with_kappa_finds_points_of_that_margin(name: str, kappa: float) -> None:
    """On a linear model they are the points that a model with a lower bias of class 1 needs."""
    model, x, labels, nearest = linear_ground(L1, False, 0.35, 0.65)
    behind = Linear(model.weight.detach(), model.bias.detach() - torch.tensor([0.0, kappa, kappa]))
    exact = distances(behind, x, labels, "L1")
    assert (exact > 1.05 * nearest).all()
    records, _ = run(model, attacks.create(f"{name}:steps=200,kappa={kappa}"), L1(30), x, labels)
    assert records["success"].all()
    assert (records["margin"] <= -kappa + 1e-5).all()
    assert (records["distance"] >= exact * (1 - 1e-5)).all()
    optimum = np.array([elastic_net_optimum(behind, image, 1e-3 / 0.01) for image in x])
    assert (records["distance"] <= 1.02 * optimum).all()


@every_ead
def test_ead_shows_the_model_no_point_outside_the_box(name: str, small_net: nn.Module) -> None:
    x = data.load("cifar10-1k").images([0, 1, 2])
    spy = Spy(small_net)
    run(spy, attacks.create(f"{name}:steps=30,search_steps=6"), L1(1), x, small_net(x).argmax(1))
    assert all(batch.min() >= 0 and batch.max() <= 1 for batch in spy.seen)


# ---------------------------------------------------------------- beside foolbox


class SmallNet(nn.Module):
    """A convolutional network with fixed random weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 12, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 49, 10)
        )
        draw = np.random.default_rng(0)
        for parameter in self.parameters():
            fan_in = max(1, parameter[0].numel())
            parameter.data = torch.tensor(draw.normal(size=parameter.shape) * (2 / fan_in) ** 0.5).float()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


@pytest.fixture(scope="module")
def small_net() -> SmallNet:
    return SmallNet()


def median_beside_foolbox(
    net: nn.Module, ours: str, theirs: str, settings: dict[str, Any], norm: type[Norm], rows: int
) -> tuple[float, float]:
    """Return both medians; a sample that foolbox did not break counts as infinitely far."""
    foolbox = importlib.import_module("tests.attacks.test_oracles").foolbox
    x = data.load("cifar10-1k").images(list(range(rows)))
    labels = net(x).argmax(1)
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    attack = getattr(foolbox.attacks, theirs)(**settings)
    found = attack.run(model, x, foolbox.criteria.Misclassification(labels)).detach()
    peer = norm(1).size((found - x).double().flatten(1)).numpy()
    peer[(net(found).argmax(1) == labels).numpy()] = np.inf
    records, _ = run(net, attacks.create(ours), norm(1), x, labels)
    return float(np.median(records["distance"].fillna(np.inf))), float(np.median(peer))


@pytest.mark.parametrize("norm", [LInf, L1], ids=lambda norm: norm.name)
def test_fmn_is_as_good_as_foolbox_on_a_robust_network(norm: type[Norm]) -> None:
    net = ra.load_model("resnet20-pgd")
    theirs = {LInf: "LInfFMNAttack", L1: "L1FMNAttack"}[norm]
    mine, peer = median_beside_foolbox(net, "fmn:steps=20", theirs, {"steps": 20}, norm, rows=16)
    assert mine <= 1.01 * peer < np.inf


@pytest.mark.parametrize(
    ("norm", "theirs"),
    [
        (LInf, "LInfFMNAttack"),
        (L2, "L2FMNAttack"),
        pytest.param(L1, "L1FMNAttack", marks=pytest.mark.long),
        pytest.param(L0, "L0FMNAttack", marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_fmn_is_as_good_as_foolbox_on_a_small_network(norm: type[Norm], theirs: str, small_net: nn.Module) -> None:
    """L0 needs more steps: both add about one value a step until the first success, and some rows need a hundred."""
    steps = 200 if norm is L0 else 100
    mine, peer = median_beside_foolbox(small_net, f"fmn:steps={steps}", theirs, {"steps": steps}, norm, rows=16)
    assert mine <= 1.01 * peer < np.inf
    if norm is L2:
        assert peer > 1.2 * mine, "foolbox's L2 projection does nothing; if this fails it has been mended"


@every_ead
@pytest.mark.parametrize("abort_early", [True, pytest.param(False, marks=pytest.mark.long)])
def test_ead_is_as_good_as_foolbox(name: str, abort_early: bool, small_net: nn.Module) -> None:
    settings = {"steps": 60, "regularization": 1e-3, "decision_rule": "L1", "abort_early": abort_early}
    ours = f"{name}:steps=60,abort_early={abort_early}"
    mine, peer = median_beside_foolbox(small_net, ours, "EADAttack", settings, L1, rows=16)
    assert mine <= 1.01 * peer < np.inf


def test_ead_fast_begins_with_the_c_that_a_linear_model_needs() -> None:
    """Just above it, the minimum that shrinkage finds lies across the boundary; just below it, before it."""
    x, slope, hinge, weight = torch.full((2, 6), 0.5), images(2, (6,), low=-2, high=2), torch.tensor([0.2, 0.6]), 0.1
    needed = ead_fast.needed_c(x, slope, hinge, weight)
    for part, crosses in ((1.001, True), (0.999, False)):
        pushed = part * needed[:, None] * slope
        move = pushed.sign() * (pushed.abs() - weight).clamp(min=0) / 2
        assert move.abs().max() < 0.5, "or the box would matter"
        assert (((slope * move).sum(1) >= hinge) == crosses).all()
