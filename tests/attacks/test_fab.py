"""FAB on models with a known boundary, and the projection it is made of against general solvers."""

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from torch import Tensor, nn

from robustassay import attacks
from robustassay.errors import BadRequest
from robustassay.target import GradientAccess
from robustassay.threat import L0, L1, L2, LabelList, LInf, Norm, Targeted, Untargeted
from robustassay.threat.hyperplane import onto_hyperplane
from tests.support.toys import (
    Constant,
    Linear,
    Numbers,
    Spy,
    distances,
    images,
    names,
    open_access,
    open_ledger,
    run,
    targeted_distances,
    two_classes,
)

ORDER: dict[type[Norm], Any] = {LInf: np.inf, L2: 2, L1: 1}
every_norm = pytest.mark.parametrize("norm", list(ORDER), ids=lambda norm: norm.name)

# ---------------------------------------------------------------- the projection


def solve(norm: type[Norm], w: Numbers, c: float, lower: Numbers, upper: Numbers) -> Numbers:
    """The same problem by general solvers; c must be within reach."""
    n, box = len(w), list(zip(lower, upper, strict=True))
    if norm is L2:
        if c == 0:  # SLSQP stumbles over a plane that holds everything
            return np.zeros(n)
        found = minimize(
            lambda d: d @ d,
            np.zeros(n),
            jac=lambda d: 2 * d,
            bounds=box,
            constraints={"type": "eq", "fun": lambda d: w @ d - c, "jac": lambda d: w},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert found.success
        solution: Numbers = found.x
        return solution
    # Linear programs in (d, t): |d| <= t for each value, or for all of them together.
    ts = n if norm is L1 else 1
    spread = np.eye(n) if norm is L1 else np.ones((n, 1))
    found = linprog(
        np.append(np.zeros(n), np.ones(ts)),
        A_ub=np.block([[np.eye(n), -spread], [-np.eye(n), -spread]]),
        b_ub=np.zeros(2 * n),
        A_eq=np.append(w, np.zeros(ts))[None],
        b_eq=[c],
        bounds=[*box, *[(0, None)] * ts],
    )
    assert found.success
    solution = found.x[:n]
    return solution


def project(norm: type[Norm], w: Numbers, c: float, lower: Numbers, upper: Numbers) -> Numbers:
    rows = (torch.tensor(values, dtype=torch.float64)[None] for values in (w, lower, upper))
    normal, low, high = rows
    out: Numbers = onto_hyperplane(norm(1), normal, torch.tensor([c], dtype=torch.float64), low, high)[0].numpy()
    return out


slopes = st.one_of(st.just(0.0), st.floats(0.1, 2), st.floats(-2, -0.1), st.sampled_from([1.0, -1.0]))
rooms = st.one_of(st.just(0.0), st.floats(0.01, 1), st.sampled_from([0.25, 1.0]))
problems = st.integers(1, 7).flatmap(
    lambda n: st.tuples(*(st.lists(kind, min_size=n, max_size=n).map(np.array) for kind in (slopes, rooms, rooms)))
)


@every_norm
@settings(max_examples=80, deadline=None, derandomize=True)
@given(problem=problems, part=st.floats(-1, 1))
def test_the_projection_is_the_smallest_move_onto_the_plane(
    norm: type[Norm], problem: tuple[Numbers, Numbers, Numbers], part: float
) -> None:
    w, below, upper = problem
    lower = -below
    reach = np.where(np.sign(part) * w > 0, upper, lower) @ w
    c = abs(part) * float(reach)
    d = project(norm, w, c, lower, upper)
    assert (d >= lower).all()
    assert (d <= upper).all()
    assert w @ d == pytest.approx(c, abs=1e-9)
    expected = solve(norm, w, c, lower, upper)
    size = np.linalg.norm(expected, ORDER[norm])
    assert np.linalg.norm(d, ORDER[norm]) == pytest.approx(size, rel=1e-5, abs=1e-6)
    assert (d[w == 0] == 0).all()


@every_norm
@settings(max_examples=40, deadline=None, derandomize=True)
@given(problem=problems, beyond=st.floats(0.01, 5), sign=st.sampled_from([-1.0, 1.0]))
def test_a_plane_out_of_reach_is_approached_as_far_as_the_box_allows(
    norm: type[Norm], problem: tuple[Numbers, Numbers, Numbers], beyond: float, sign: float
) -> None:
    w, below, upper = problem
    corner = np.where(sign * w > 0, upper, -below) * (w != 0)
    d = project(norm, w, float(corner @ w) + sign * beyond, -below, upper)
    np.testing.assert_allclose(d, corner, atol=1e-12)


@every_norm
def test_rows_are_projected_each_on_its_own(norm: type[Norm]) -> None:
    draw = torch.Generator().manual_seed(0)
    w, c = torch.randn(40, 30, generator=draw), 4 * torch.randn(40, generator=draw)
    x = torch.rand(40, 30, generator=draw)
    together = onto_hyperplane(norm(1), w, c, -x, 1 - x)
    for row in range(40):
        one = slice(row, row + 1)
        assert torch.equal(onto_hyperplane(norm(1), w[one], c[one], -x[one], 1 - x[one]), together[one])
        if row < 8:
            low, high = -x[row].double().numpy(), 1 - x[row].double().numpy()
            found = solve(norm, w[row].double().numpy(), float(c[row]), low, high)
            assert float(norm(1).size(together[row])) == pytest.approx(np.linalg.norm(found, ORDER[norm]), rel=1e-5)


@every_norm
def test_extreme_slopes_make_no_nan(norm: type[Norm]) -> None:
    w = torch.tensor([[0.0, 0.0, 0.0], [1e-38, 0.0, -1e-38], [1e30, 1e-30, -1.0], [1.0, 1.0, 1.0]])
    c = torch.tensor([1.0, 1e-38, 1e30, 0.0])
    half = torch.full((4, 3), 0.5)
    d = onto_hyperplane(norm(1), w, c, -half, half)
    assert d.isfinite().all()
    assert d[0].tolist() == d[3].tolist() == [0.0] * 3
    np.testing.assert_allclose((w.double() * d).sum(1)[1:3], [1e-38, 5e29], rtol=1e-6)


def test_a_norm_without_planes_is_refused() -> None:
    one = torch.ones(1, 2)
    with pytest.raises(TypeError, match="L0"):
        onto_hyperplane(L0(1), one, one[:, 0], -one, one)


# ---------------------------------------------------------------- linear and curved boundaries


@every_norm
@pytest.mark.parametrize(("aim", "walls"), [("classes", False), ("classes", True), ("any", False)])
def test_many_linear_classes_are_broken_within_one_percent_of_the_nearest(
    norm: type[Norm], aim: str, walls: bool
) -> None:
    """Near walls, aiming at any class goes to the one that would be nearest without them, as in the paper."""
    draw = torch.Generator().manual_seed(1)
    model = Linear(torch.randn(6, 20, generator=draw), 0.1 * torch.randn(6, generator=draw))
    x = images(12, (20,), low=0, high=1).round() if walls else images(12, (20,))
    labels = model(x).argmax(1)
    exact = distances(model, x, labels, norm.name)
    records, _ = run(model, attacks.create(f"fab:steps=25,aim={aim}"), norm(0.5), x, labels)
    ratio = records["distance"].to_numpy(float) / exact
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio <= 1.01).all()


@every_norm
@pytest.mark.parametrize("walls", [False, True], ids=["grey", "walls"])
def test_a_target_is_reached_within_one_percent_of_the_nearest(norm: type[Norm], walls: bool) -> None:
    model = two_classes(12, seed=5, margin=0.3, dead=2)
    x = images(200, (12,), low=0, high=1).round() if walls else images(30, (12,))
    exact = targeted_distances(model, x, torch.ones(len(x), dtype=torch.int64), norm.name)
    open_rows = ((exact > 0) & np.isfinite(exact)).nonzero()[0][:8]
    x, exact = x[open_rows], exact[open_rows]
    assert len(x) == 8
    target = LabelList(dict.fromkeys(names(8), 1))
    records, _ = run(
        model, attacks.create("fab:steps=25"), norm(0.5), x, torch.zeros(8, dtype=torch.int64), target=target
    )
    ratio = records["distance"].to_numpy(float) / exact
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio <= 1.01).all()


def test_a_target_must_pass_every_other_class() -> None:
    """Between the clean class and the target lies a third; passing the first alone is not enough."""
    model = Linear(torch.tensor([[-1.0, 0.0], [0.0, 0.5], [1.0, -0.2]]), torch.tensor([0.6, 0.3, -0.6]))
    x, labels = torch.tensor([[0.2, 0.5]]), torch.zeros(1, dtype=torch.int64)
    assert model(torch.tensor([[0.61, 0.5]])).argmax(1).item() == 1, "where target and clean class are equal"
    records, _ = run(model, attacks.create("fab"), L2(0.5), x, labels, target=LabelList({"row-0": 2}))
    found = minimize(
        lambda d: d @ d,
        np.array([0.5, -0.4]),
        bounds=[(-0.2, 0.8), (-0.5, 0.5)],
        constraints=[
            {"type": "ineq", "fun": lambda d: (0.2 + d[0]) * 2 - 0.2 * (0.5 + d[1]) - 1.2},
            {"type": "ineq", "fun": lambda d: (0.2 + d[0]) - 0.7 * (0.5 + d[1]) - 0.9},
        ],
    )
    assert found.success
    assert records["adv_label"].tolist() == [2]
    assert 1 - 1e-5 <= records["distance"][0] / np.sqrt(found.fun) <= 1.05


class Bowl(nn.Module):
    """Class 1 outside a sphere about the grey image, class 0 inside."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = nn.Parameter(torch.tensor(radius))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        squared = (x.flatten(1) - 0.5).square().sum(1)
        return torch.stack((self.radius**2 - squared, squared - self.radius**2), 1)


def test_a_curved_boundary_is_found_within_five_percent() -> None:
    x = images(16, (10,), low=0.46, high=0.54)
    records, _ = run(Bowl(0.3), attacks.create("fab"), L2(0.5), x, torch.zeros(16, dtype=torch.int64))
    exact = 0.3 - np.linalg.norm(x.double().numpy() - 0.5, axis=1)
    ratio = records["distance"].to_numpy(float) / exact
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio <= 1.05).all()


# ---------------------------------------------------------------- classes, batches, budgets


def conv_net(classes: int = 5) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(2, 6, 3), nn.SiLU(), nn.Flatten(), nn.Linear(6 * 4 * 3, classes)]
    return nn.Sequential(*layers).eval()


def test_each_class_is_pursued_in_the_order_of_clean_scores() -> None:
    """The second class is near in scores and out of reach; only the third can be reached at all."""
    model = Linear(
        torch.tensor([[0.0, 0.0], [0.01, 0.0], [0.0, 2.0], [0.0, 0.0]]), torch.tensor([1.0, 0.9, -0.5, -9.0])
    )
    x, labels = torch.tensor([[0.5, 0.5]]), torch.zeros(1, dtype=torch.int64)
    one, _ = run(model, attacks.create("fab:targets=1"), L2(0.5), x, labels)
    two, _ = run(model, attacks.create("fab:targets=2"), L2(0.5), x, labels)
    every, _ = run(model, attacks.create("fab"), L2(0.5), x, labels)
    assert not one["claimed"].any()
    assert two["distance"][0] == pytest.approx(0.25, rel=0.01)
    assert [frame["queries"][0] for frame in (one, two, every)] == [203, 404, 605], "clean, two a step, the last looks"
    assert every["backwards"].tolist() == [300], "as many classes as there are"


@every_norm
@pytest.mark.parametrize("spec", ["fab:steps=15,targets=2", "fab:steps=10,aim=any,starts=2"])
def test_a_row_gets_the_same_alone_and_in_company(norm: type[Norm], spec: str) -> None:
    model, x = conv_net(), images(9, (2, 6, 5), low=0, high=1)
    labels = model(x).argmax(1)
    attack = attacks.create(spec)
    together, together_adv = run(model, attack, norm(0.1), x, labels)
    assert together["claimed"].all()
    for part in (slice(0, 1), slice(4, 5), slice(3, 8)):
        alone, alone_adv = run(model, attack, norm(0.1), x[part], labels[part], ids=names(9)[part])
        assert torch.equal(alone_adv, together_adv[part])
        assert alone["distance"].tolist() == together["distance"][part].tolist()


@every_norm
@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
def test_on_a_fixed_budget_rows_leave_at_the_first_point_inside(norm: type[Norm], targeted: bool) -> None:
    """As a stage of an ensemble its claims are judged by the budget, and near rows must not pay for far ones."""
    model = two_classes(12, seed=3, dead=1)
    x = images(10, (12,))
    x = x[model(x).argmax(1) == 0]
    labels = torch.zeros(len(x), dtype=torch.int64)
    exact = distances(model, x, labels, norm.name)
    eps = norm(float(np.median(exact)) * 1.02)
    books = open_ledger(eps, x, Targeted(labels + 1) if targeted else Untargeted(labels))
    last = attacks.create("fab:steps=20")(open_access(GradientAccess, model, books), x)
    assert books.claimed.tolist() == (exact * 1.01 < eps.eps).tolist()
    assert (books.distance[books.claimed] <= eps.eps + eps.slack(12)).all()
    assert 0 < books.claimed.sum() < len(x)
    assert len(last) == (~books.claimed).sum()
    assert books.queries[books.claimed].max() < books.queries[~books.claimed].min()


@every_norm
def test_every_point_is_inside_the_box(norm: type[Norm]) -> None:
    spy, x = Spy(conv_net()), images(5, (2, 6, 5), low=0, high=1).round()
    run(spy, attacks.create("fab:steps=10"), norm(0.1), x, conv_net()(x).argmax(1))
    assert all(batch.min() >= 0 and batch.max() <= 1 for batch in spy.seen)


# ---------------------------------------------------------------- the nearest of all classes


def test_aiming_at_any_class_costs_the_gradients_of_all() -> None:
    model = Linear(torch.tensor([[0.0, 0.0], [0.01, 0.0], [0.0, 2.0]]), torch.tensor([1.0, 0.9, -0.5]))
    x, labels = torch.tensor([[0.5, 0.5]]), torch.zeros(1, dtype=torch.int64)
    records, _ = run(model, attacks.create("fab:steps=20,aim=any,starts=2"), L2(0.5), x, labels)
    assert records["distance"][0] == pytest.approx(0.25, rel=0.01), "the nearest class, not the likeliest"
    assert records["backwards"].tolist() == [2 * 20 * 3]
    assert records["queries"].tolist() == [2 * 20 * 2 + 1]


def test_a_target_leaves_no_choice_of_aim() -> None:
    model, x, labels = two_classes(12, seed=5, margin=0.3, dead=2), images(4, (12,)), torch.zeros(4, dtype=torch.int64)
    target = LabelList(dict.fromkeys(names(4), 1))
    found = [
        run(model, attacks.create(f"fab:steps=10,aim={aim}"), L2(0.5), x, labels, target=target)[1]
        for aim in ("classes", "any")
    ]
    assert torch.equal(*found)
    assert not torch.equal(found[0], x)


@every_norm
def test_all_starts_but_the_first_are_elsewhere_and_near(norm: type[Norm]) -> None:
    spy, x = Spy(Constant()), images(1, (8,))
    run(spy, attacks.create("fab:steps=1,aim=any,starts=3"), norm(0.2), x, torch.zeros(1, dtype=torch.int64))
    points = {tuple(batch[0].tolist()) for batch in spy.seen} - {tuple(x[0].tolist())}
    assert len(points) == 4, "two starts, and one step from each, which without slope goes back a little"
    assert all(0 < float(norm(1).size(torch.tensor(point) - x[0])) <= 0.1 + 1e-6 for point in points)


def test_an_aim_nobody_knows_is_refused() -> None:
    with pytest.raises(BadRequest, match="aim must be classes or any"):
        attacks.create("fab:aim=up")


@pytest.mark.oracle
@every_norm
@pytest.mark.parametrize("aim", ["classes", "any"])
def test_walks_end_where_those_of_the_authors_do(norm: type[Norm], aim: str) -> None:
    """The authors' package takes the same steps in float32, so distances agree but for rounding."""
    theirs = importlib.import_module("pyautoattack.fab_pt").FABAttack_PT
    model, x = conv_net(6), images(12, (2, 6, 5), low=0, high=1)
    labels = model(x).argmax(1)
    settings = {"n_iter": 15, "eps": 1e9, "device": "cpu", "targeted": aim == "classes", "n_target_classes": 1}
    found = theirs(model, norm=norm.name, **settings).perturb(x, labels)
    sizes = np.linalg.norm((found - x).flatten(1).double().numpy(), ORDER[norm], 1)
    assert (model(found).argmax(1) != labels).all()
    records, _ = run(model, attacks.create(f"fab:steps=15,targets=1,aim={aim}"), norm(0.1), x, labels)
    np.testing.assert_allclose(records["distance"].to_numpy(float), sizes, rtol=0.01)
