"""Norms, balls, goals and target rules against independent solvers and brute force."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.optimize import linprog, minimize
from torch import Tensor

from robustassay.eps import format_eps, parse_eps
from robustassay.errors import BadRequest
from robustassay.evaluation import verify
from robustassay.registry import registered
from robustassay.rng import Streams
from robustassay.threat import (
    L0,
    L1,
    L2,
    Ball,
    Goal,
    LabelList,
    LeastLikely,
    LInf,
    Norm,
    RandomTarget,
    Targeted,
    ThreatModel,
    Untargeted,
    labels_of,
)
from tests.support.toys import Numbers, names

NORMS: dict[str, type[Norm]] = {"Linf": LInf, "L2": L2, "L1": L1, "L0": L0}
ORDERS = {"Linf": np.inf, "L2": 2, "L1": 1, "L0": 0}
ROUNDING = 2.0**-22  # a float32 image, and the few operations that made it

every_norm = pytest.mark.parametrize("norm", NORMS)
pixels = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1, width=32))
far_pixels = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(-3, 4, width=32))


def radii(norm: str) -> st.SearchStrategy[float]:
    return st.integers(1, 6).map(float) if norm == "L0" else st.floats(1e-3, 3)


def ball_at(norm: str, centre: npt.NDArray[Any], eps: float | Sequence[float]) -> Ball:
    each = torch.tensor(np.broadcast_to(np.asarray(eps, np.float32), (len(centre),)).copy())
    return Ball(NORMS[norm](1.0), torch.tensor(centre, dtype=torch.float32), each)


def sizes(norm: str, delta: Tensor) -> Numbers:
    """Measure in NumPy at float64, whatever shape an image has."""
    flat = delta.double().numpy().reshape(len(delta), -1)
    return np.array([np.linalg.norm(row, ord=ORDERS[norm]) for row in flat])


# ---------------------------------------------------------------- projection


@every_norm
@given(data=st.data())
def test_projection_lands_inside_ball_and_box_and_stays_there(norm: str, data: st.DataObject) -> None:
    centre = data.draw(arrays(np.float32, (3, 6), elements=pixels))
    x = torch.from_numpy(data.draw(arrays(np.float32, (3, 6), elements=far_pixels)))
    eps = data.draw(st.lists(radii(norm), min_size=3, max_size=3))
    ball = ball_at(norm, centre, eps)
    once = ball.project(x)
    assert once.min() >= 0
    assert once.max() <= 1
    slack = 0 if norm == "L0" else 6 * ROUNDING
    assert (sizes(norm, once.double() - ball.centre.double()) <= ball.eps.double().numpy() + slack).all()
    assert ball.holds(once, ball.distance(once)).all()
    twice = ball.project(once)
    np.testing.assert_allclose(twice.numpy(), once.numpy(), atol=ROUNDING)


@every_norm
@given(data=st.data())
def test_projection_moves_no_point_that_is_inside(norm: str, data: st.DataObject) -> None:
    centre = data.draw(arrays(np.float32, (1, 6), elements=pixels))
    x = data.draw(arrays(np.float32, (1, 6), elements=pixels))
    if norm == "L0":
        eps = float(max(1, (x != centre).sum()))
    else:
        eps = float(np.linalg.norm((x - centre)[0].astype(np.float64), ord=ORDERS[norm])) + 1e-3
    np.testing.assert_allclose(ball_at(norm, centre, eps).project(torch.from_numpy(x)).numpy(), x, atol=1e-7)


def solved_by_bisection(norm: str, delta: Numbers, lower: Numbers, upper: Numbers, eps: float) -> Numbers:
    """The projection onto ball and box from its Lagrangian: one multiplier, found by bisection."""

    def at(multiplier: float) -> Numbers:
        if norm == "L2":
            shrunk = delta / (1 + multiplier)
        else:
            shrunk = np.sign(delta) * np.maximum(np.abs(delta) - multiplier, 0)
        return np.minimum(np.maximum(shrunk, lower), upper)

    def size(move: Numbers) -> float:
        return float(np.linalg.norm(move, ord=ORDERS[norm]))

    if size(at(0.0)) <= eps:
        return at(0.0)
    low, high = 0.0, 1.0
    while size(at(high)) > eps:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if size(at(middle)) > eps else (low, middle)
    return at(high)


@pytest.mark.parametrize("norm", ["L2", "L1"])
@given(data=st.data())
def test_projection_equals_a_bisection_on_the_multiplier(norm: str, data: st.DataObject) -> None:
    centre = data.draw(arrays(np.float32, (1, 7), elements=pixels))
    x = data.draw(arrays(np.float32, (1, 7), elements=far_pixels))
    eps = data.draw(radii(norm))
    expected = solved_by_bisection(
        norm, (x - centre)[0].astype(np.float64), -centre[0].astype(np.float64), 1 - centre[0].astype(np.float64), eps
    )
    projected = ball_at(norm, centre, eps).project(torch.from_numpy(x))[0]
    np.testing.assert_allclose(projected.numpy() - centre[0], expected, atol=1e-6)


@pytest.mark.parametrize("norm", ["L2", "L1"])
@pytest.mark.parametrize("seed", range(6))
def test_projection_equals_a_general_solver(norm: str, seed: int) -> None:
    """SLSQP knows nothing of balls: it minimises the distance under the constraints as given."""
    draw = np.random.default_rng(seed)
    n = 5
    centre = np.where(draw.random(n) < 0.4, draw.integers(0, 2, n), draw.random(n))
    wish = centre + draw.normal(size=n)
    eps = 0.2 + draw.random()
    bounds = [(-c, 1 - c) for c in centre]
    if norm == "L2":
        start = np.zeros(n)
        found = minimize(
            lambda d: ((d - (wish - centre)) ** 2).sum(),
            start,
            jac=lambda d: 2 * (d - (wish - centre)),
            bounds=bounds,
            constraints={"type": "ineq", "fun": lambda d: eps**2 - d @ d, "jac": lambda d: -2 * d},
            options={"ftol": 1e-16, "maxiter": 500},
        ).x
    else:  # split into positive and negative part, so that the sum is smooth
        signs = np.concatenate((np.ones(n), -np.ones(n)))

        def joined(parts: Numbers) -> Numbers:
            return parts[:n] - parts[n:]

        found = joined(
            minimize(
                lambda parts: ((joined(parts) - (wish - centre)) ** 2).sum(),
                np.zeros(2 * n),
                jac=lambda parts: 2 * signs * np.tile(joined(parts) - (wish - centre), 2),
                bounds=[(0, 1 - c) for c in centre] + [(0, c) for c in centre],
                constraints={"type": "ineq", "fun": lambda parts: eps - parts.sum(), "jac": lambda p: -np.ones(2 * n)},
                options={"ftol": 1e-16, "maxiter": 500},
            ).x
        )
    projected = ball_at(norm, centre[None], eps).project(torch.tensor(wish[None], dtype=torch.float32))[0]
    np.testing.assert_allclose(projected.double().numpy() - centre, found, atol=1e-6)


@given(data=st.data())
def test_l0_projection_equals_brute_force_over_all_supports(data: st.DataObject) -> None:
    centre = data.draw(arrays(np.float32, (1, 5), elements=pixels))
    x = data.draw(arrays(np.float32, (1, 5), elements=far_pixels))
    count = data.draw(st.integers(1, 5))
    inside = np.clip(x[0], 0, 1)
    candidates = [
        np.where(np.isin(np.arange(5), support), inside, centre[0])
        for support in itertools.combinations(range(5), count)
    ]
    least = min(np.linalg.norm((x[0] - candidate).astype(np.float64)) for candidate in candidates)
    projected = ball_at("L0", centre, count).project(torch.from_numpy(x))[0].numpy()
    assert np.linalg.norm((x[0] - projected).astype(np.float64)) <= least + 1e-6
    assert (projected != centre[0]).sum() <= count


def test_linf_projection_clips_to_eps_and_box() -> None:
    ball = ball_at("Linf", np.array([[0.0, 0.5, 0.95]]), 0.1)
    projected = ball.project(torch.tensor([[-1.0, 0.9, 2.0]]))
    np.testing.assert_allclose(projected.numpy(), [[0.0, 0.6, 1.0]], atol=1e-7)


@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_projection_of_large_images_equals_bisection(norm: str) -> None:
    draw = np.random.default_rng(1)
    n = 3072
    centre = np.where(draw.random(n) < 0.3, draw.integers(0, 2, n), draw.random(n)).astype(np.float32)
    for eps, spread in ((0.5, 0.02), (3.0, 1.0), (12.0, 0.1), (12.0, 30.0)):
        x = (centre + spread * draw.normal(size=n)).astype(np.float32)
        delta, low, high = (a.astype(np.float64) for a in (x - centre, -centre, 1 - centre))
        expected = solved_by_bisection(norm, delta, low, high, eps)
        projected = ball_at(norm, centre[None], eps).project(torch.from_numpy(x[None]))
        np.testing.assert_allclose(projected[0].numpy() - centre, expected, atol=1e-6)
        assert sizes(norm, projected.double() - torch.from_numpy(centre).double())[0] <= eps + n**0.5 * ROUNDING


# ---------------------------------------------------------------- rows and points


@every_norm
def test_each_row_has_its_own_radius(norm: str) -> None:
    draw = np.random.default_rng(0)
    centre = draw.random((4, 3, 2, 5)).astype(np.float32)
    x = torch.tensor(draw.normal(size=(4, 3, 2, 5)), dtype=torch.float32)
    eps = [1.0, 3.0, 7.0, 30.0] if norm == "L0" else [0.01, 0.1, 0.7, 9.0]
    ball = ball_at(norm, centre, eps)
    for row in range(4):
        alone = ball_at(norm, centre[row : row + 1], eps[row])
        assert torch.equal(ball.project(x)[row : row + 1], alone.project(x[row : row + 1]))
        assert torch.equal(ball.distance(x)[row : row + 1], alone.distance(x[row : row + 1]))
    picked = torch.tensor([2, 0])
    assert torch.equal(ball.among(picked).project(x[picked]), ball.project(x)[picked])


@every_norm
def test_a_row_is_projected_to_the_same_bits_whatever_its_mates(norm: str) -> None:
    draw = np.random.default_rng(0)
    centre = np.where(draw.random((64, 40)) < 0.3, draw.integers(0, 2, (64, 40)), draw.random((64, 40)))
    ball = ball_at(norm, centre, 4.0 if norm == "L0" else 0.4)
    x = torch.tensor(centre + draw.normal(size=(64, 40)) * draw.random((64, 1)), dtype=torch.float32)
    together = ball.project(x)
    for row in range(64):
        assert torch.equal(together[row], ball.among(torch.tensor([row])).project(x[row : row + 1])[0])


@every_norm
@pytest.mark.parametrize("shape", [(6,), (3, 4, 2)])
def test_many_points_a_row_are_treated_as_one_by_one(norm: str, shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(0)
    centre = draw.random((3, *shape)).astype(np.float32)
    eps = [1.0, 2.0, 4.0] if norm == "L0" else [0.05, 0.3, 1.0]
    ball = ball_at(norm, centre, eps)
    x = torch.tensor(draw.random((3, 5, *shape)) * 1.4 - 0.2, dtype=torch.float32)
    gradient = torch.tensor(draw.normal(size=(3, 5, *shape)), dtype=torch.float32)
    projected, stepped = ball.project(x), ball.step(x.clamp(0, 1), gradient, ball.eps)
    distance = ball.distance(projected)
    assert projected.shape == x.shape
    assert distance.shape == (3, 5)
    for q in range(5):
        assert torch.equal(projected[:, q], ball.project(x[:, q]))
        assert torch.equal(stepped[:, q], ball.step(x[:, q].clamp(0, 1), gradient[:, q], ball.eps))
        assert torch.equal(distance[:, q], ball.distance(projected[:, q]))
        assert torch.equal(ball.in_box(x)[:, q], ball.in_box(x[:, q]))


@every_norm
def test_distance_is_the_norm_in_float64(norm: str) -> None:
    draw = np.random.default_rng(0)
    centre = draw.random((5, 3, 8, 8)).astype(np.float32)
    x = torch.tensor(np.where(draw.random(centre.shape) < 0.5, centre, draw.random(centre.shape)), dtype=torch.float32)
    expected = sizes(norm, x.double() - torch.from_numpy(centre).double())
    assert ball_at(norm, centre, 1.0).distance(x).tolist() == pytest.approx(expected, rel=1e-14)


@every_norm
def test_holds_is_strict_beyond_rounding(norm: str) -> None:
    centre = np.full((1, 4), 0.5)
    eps = 2.0 if norm == "L0" else 0.25
    ball = ball_at(norm, centre, eps)
    on_the_edge = {
        "Linf": [0.75, 0.25, 0.5, 0.5],
        "L2": [0.75, 0.5, 0.5, 0.5],
        "L1": [0.625, 0.375, 0.5, 0.5],
        "L0": [0.0, 1.0, 0.5, 0.5],
    }[norm]
    x = torch.tensor([on_the_edge])
    assert ball.holds(x, ball.distance(x)).all()
    beyond = x.clone()
    beyond[0, 0] += 1e-5 if norm != "L0" else 0
    beyond[0, 2] += 1e-5 if norm == "L0" else 0
    assert not ball.holds(beyond, ball.distance(beyond)).any()


@pytest.mark.parametrize("value", [-1e-6, 1 + 1e-6, float("nan"), float("inf")])
def test_holds_refuses_what_is_outside_the_box(value: float) -> None:
    ball = ball_at("Linf", np.array([[0.0, 1.0]]), 5.0)
    x = torch.tensor([[value, 0.5]])
    assert not ball.holds(x, ball.distance(x)).any()


# ---------------------------------------------------------------- steepest steps


def feasible_steps(norm: str, point: Numbers, length: float, draw: np.random.Generator) -> Numbers:
    """Random steps of at most that length; those of L1 and L0 respect the room, as their steepest steps must."""
    n = len(point)
    moves: Numbers = draw.normal(size=(400, n))
    if norm == "Linf":
        return np.clip(moves, -1, 1) * length
    if norm == "L2":
        moves *= length / np.linalg.norm(moves, axis=1, keepdims=True)
        return moves
    moves = np.clip(point + moves, 0, 1) - point
    if norm == "L1":
        moves *= np.minimum(1, length / np.maximum(np.abs(moves).sum(1, keepdims=True), 1e-12))
        return moves
    keep = draw.random((400, n)).argsort(1).argsort(1) < length
    moves *= keep
    return moves


@every_norm
@given(data=st.data())
def test_no_feasible_step_climbs_faster_than_the_steepest(norm: str, data: st.DataObject) -> None:
    point = data.draw(arrays(np.float32, (6,), elements=pixels)).astype(np.float64)
    gradient = data.draw(arrays(np.float32, (6,), elements=st.floats(-2, 2, width=16)))
    length = data.draw(st.integers(1, 5).map(float) if norm == "L0" else st.floats(0.01, 2))
    at = torch.tensor(point, dtype=torch.float32)
    step = NORMS[norm](1.0).steepest(torch.from_numpy(gradient), -at, 1 - at, torch.tensor(length)).double().numpy()
    assert np.linalg.norm(step, ord=ORDERS[norm]) <= length * (1 + 1e-6)
    if norm in ("L1", "L0"):
        assert (at.double().numpy() + step >= -1e-7).all()
        assert (at.double().numpy() + step <= 1 + 1e-7).all()
    others = feasible_steps(norm, point, length, np.random.default_rng(0))
    g = gradient.astype(np.float64)
    assert step @ g >= (others @ g).max() - 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_l1_steepest_step_solves_the_linear_program(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n = 8
    point = np.where(draw.random(n) < 0.4, draw.integers(0, 2, n), draw.random(n))
    gradient, length = draw.normal(size=n), 1.7
    best = linprog(  # positive and negative parts of the step
        np.concatenate((-gradient, gradient)),
        A_ub=np.ones((1, 2 * n)),
        b_ub=[length],
        bounds=[(0, 1 - p) for p in point] + [(0, p) for p in point],
    )
    at = torch.tensor(point)
    step = L1(1.0).steepest(torch.tensor(gradient), -at, 1 - at, torch.tensor(length, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(step, best.x[:n] - best.x[n:], atol=1e-9)


@every_norm
def test_a_zero_gradient_makes_no_step_and_no_nan(norm: str) -> None:
    ball = ball_at(norm, np.array([[0.0, 1.0, 0.3]]), 2.0)
    assert torch.equal(ball.step(ball.centre, torch.zeros(1, 3), ball.eps), ball.centre)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-13, 1e-6, 1.0, 1e15, 1e25])
@every_norm
def test_a_step_does_not_depend_on_the_scale_of_the_gradient(norm: str, scale: float) -> None:
    """A confident model's cross-entropy has gradients of 1e-20 and less; their direction is as good as any."""
    draw = np.random.default_rng(0)
    ball = ball_at(norm, draw.uniform(0.4, 0.6, (2, 12)), 3.0 if norm == "L0" else 0.05)
    gradient = torch.tensor(draw.normal(size=(2, 12)), dtype=torch.float32)
    moved = ball.step(ball.centre, gradient * scale, ball.eps)
    np.testing.assert_allclose(moved.numpy(), ball.step(ball.centre, gradient, ball.eps).numpy(), atol=1e-6)


# ---------------------------------------------------------------- random points


@every_norm
@pytest.mark.parametrize("low", [0.0, 0.3])
def test_samples_lie_inside_ball_and_box(norm: str, low: float) -> None:
    draw = np.random.default_rng(0)
    ball = ball_at(norm, draw.uniform(low, 1 - low, (200, 3, 4, 4)), 5.0 if norm == "L0" else 0.3)
    x = ball.sample(Streams.of(0, names(200)))
    assert x.shape == ball.centre.shape
    assert ball.holds(x, ball.distance(x)).all()
    assert (ball.distance(x) > 0).all()


def unit_draws(norm: str, rows: int, n: int) -> Numbers:
    ball = ball_at(norm, np.full((rows, n), 0.5), 0.25)  # far from the box: nothing is clipped
    return (ball.sample(Streams.of(0, names(rows))).double().numpy() - 0.5) / 0.25


@every_norm
@pytest.mark.parametrize("n", [5, 48])
def test_a_row_draws_the_same_point_to_the_last_bit_whatever_its_mates(norm: str, n: int) -> None:
    """A float32 power or logarithm is rounded otherwise at the end of a tensor than in its middle."""
    rows = 700
    ball = ball_at(norm, np.full((rows, n), 0.5), 2.0 if norm == "L0" else 0.3)
    together = ball.sample(Streams.of(0, names(rows)))
    parts = [torch.arange(start, start + 7) for start in range(0, rows, 7)]
    apart = torch.cat([ball.among(part).sample(Streams.of(0, [names(rows)[i] for i in part])) for part in parts])
    assert torch.equal(together, apart)


@pytest.mark.parametrize("n", [2, 5, 30])
@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_samples_fill_the_ball_evenly(norm: str, n: int) -> None:
    """In an evenly filled ball of n dimensions the n-th power of the radius is uniform, and signs are fair."""
    moves = unit_draws(norm, 4000, n)
    radius = np.linalg.norm(moves, ord=ORDERS[norm], axis=1)
    assert stats.kstest(radius**n, "uniform").pvalue > 1e-4
    assert abs((moves > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(moves.size)
    assert abs(moves.mean(0)).max() < 5 * moves.std() / np.sqrt(len(moves))


def test_l2_samples_favour_no_direction() -> None:
    angles = np.arctan2(*unit_draws("L2", 8000, 2).T)
    assert stats.kstest((angles + np.pi) / (2 * np.pi), "uniform").pvalue > 1e-4


def test_l1_samples_split_the_sum_evenly() -> None:
    """A coordinate's share of the sum on the simplex of three follows Beta(1, 2)."""
    moves = np.abs(unit_draws("L1", 8000, 3))
    for share in (moves / moves.sum(1, keepdims=True)).T:
        assert stats.kstest(share, stats.beta(1, 2).cdf).pvalue > 1e-4


def test_l0_samples_change_as_many_values_as_allowed_and_favour_none() -> None:
    ball = ball_at("L0", np.full((6000, 6), 0.5), 2.0)
    changed = ball.sample(Streams.of(0, names(6000))) != ball.centre
    assert (changed.sum(1) == 2).all()
    assert stats.chisquare(changed.sum(0).numpy()).pvalue > 1e-4


# ---------------------------------------------------------------- goals

few_logits = st.integers(-2, 2).map(float)  # few values, so that ties are common


def first_of_the_highest(logits: npt.NDArray[np.float32]) -> int:
    return next(i for i, logit in enumerate(logits) if logit == logits.max())


@given(
    logits=arrays(np.float32, (4, 5), elements=few_logits), wanted=st.lists(st.integers(0, 4), min_size=4, max_size=4)
)
def test_goals_agree_with_the_label_and_the_lowest_index_wins_ties(
    logits: npt.NDArray[np.float32], wanted: list[int]
) -> None:
    scores, classes = torch.from_numpy(logits), torch.tensor(wanted)
    untargeted, targeted = Untargeted(classes), Targeted(classes)
    for row in range(4):
        label = first_of_the_highest(logits[row])
        others = np.delete(logits[row], wanted[row])
        assert labels_of(scores)[row] == label
        assert bool(untargeted.reached(scores)[row]) == (label != wanted[row])
        assert bool(targeted.reached(scores)[row]) == (label == wanted[row])
        assert untargeted.margin(scores)[row] == logits[row, wanted[row]] - others.max()
        assert targeted.margin(scores)[row] == others.max() - logits[row, wanted[row]]
    for goal in (untargeted, targeted):
        margin, reached = goal.margin(scores), goal.reached(scores)
        assert reached[margin < 0].all()
        assert not reached[margin > 0].any()


@given(logits=arrays(np.float64, (3, 6), elements=st.floats(-30, 30)))
def test_loss_is_the_cross_entropy_and_rises_towards_the_goal(logits: Numbers) -> None:
    classes = torch.tensor([0, 3, 5])
    log_sum = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
    expected = log_sum - logits[np.arange(3), classes.numpy()]
    scores = torch.from_numpy(logits)
    np.testing.assert_allclose(Untargeted(classes).loss(scores).numpy(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(Targeted(classes).loss(scores).numpy(), -expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [Untargeted, Targeted])
def test_many_points_a_row_share_the_goal_of_their_row(kind: type[Goal]) -> None:
    logits = torch.tensor(np.random.default_rng(0).normal(size=(3, 4, 5)))
    goal = kind(torch.tensor([0, 2, 4]))
    for q in range(4):
        for measure in (goal.loss, goal.margin, goal.reached):
            assert torch.equal(measure(logits)[:, q], measure(logits[:, q]))
    assert torch.equal(goal.among(torch.tensor([2])).margin(logits[2:]), goal.margin(logits)[2:])
    assert torch.equal(goal.among(slice(1, 3)).margin(logits[1:]), goal.margin(logits)[1:])


@pytest.mark.parametrize("margin", [1.0, 10.0, 17.0, 25.0, 40.0, 80.0])
def test_the_untargeted_gradient_leaves_the_true_class_however_sure_the_model_is(margin: float) -> None:
    """d loss / d logits is p - onehot, whose entries sum to zero: lowering the true logit is half of every step.

    Computed as softmax minus one in float32, that half is lost once the margin passes 17 (1 - 2^-24 is 1).
    """
    logits = torch.tensor([[margin, 0.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(Untargeted(torch.tensor([0])).loss(logits).sum(), logits)
    odds = 2 * np.exp(-margin)
    expected = odds / (1 + odds) * np.array([-1.0, 0.5, 0.5])
    np.testing.assert_allclose(gradient[0].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", [Untargeted, Targeted])
def test_a_row_has_the_same_loss_and_gradient_to_the_last_bit_whatever_its_mates(kind: type[Goal]) -> None:
    rows = 700
    logits = torch.tensor(np.random.default_rng(0).normal(size=(rows, 10)) * 4, dtype=torch.float32)
    labels = torch.arange(rows) % 10

    def climb(part: slice) -> tuple[Tensor, Tensor]:
        scores = logits[part].clone().requires_grad_()
        loss = kind(labels[part]).loss(scores)
        return loss.detach(), torch.autograd.grad(loss.sum(), scores)[0]

    together = climb(slice(0, rows))
    apart = [climb(slice(start, start + 7)) for start in range(0, rows, 7)]
    for whole, parts in zip(together, zip(*apart, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(parts))


# ---------------------------------------------------------------- target rules


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_random_targets_are_never_the_label_and_cover_all_others_evenly(classes: int) -> None:
    rows = 3000
    labels = torch.arange(rows) % classes
    targets = RandomTarget().choose(names(rows), labels, torch.zeros(rows, classes), seed=0)
    assert (targets != labels).all()
    assert targets.min() >= 0
    assert targets.max() < classes
    shift = torch.bincount((targets - labels) % classes, minlength=classes)[1:].numpy()
    assert (shift > 0).all()
    assert classes == 2 or stats.chisquare(shift).pvalue > 1e-4


def test_random_targets_depend_on_seed_and_sample_alone() -> None:
    labels, logits = torch.zeros(50, dtype=torch.int64), torch.zeros(50, 10)
    whole = RandomTarget().choose(names(50), labels, logits, seed=0)
    backwards = RandomTarget().choose(names(50)[::-1], labels, torch.randn(50, 10), seed=0)
    assert torch.equal(whole, backwards.flip(0))
    assert not torch.equal(whole, RandomTarget().choose(names(50), labels, logits, seed=1))


def test_least_likely_is_the_lowest_wrong_logit() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    assert LeastLikely().choose(["a", "b"], torch.tensor([1, 2]), logits, 0).tolist() == [2, 0]


def test_label_list_gives_each_sample_its_target() -> None:
    rule = LabelList({"b": 2, "a": 1, "c": 0})
    assert rule.choose(["a", "b"], torch.tensor([0, 0]), torch.zeros(2, 3), 0).tolist() == [1, 2]
    assert rule.identity == LabelList({"a": 1, "b": 2, "c": 0}).identity
    assert rule.identity != LabelList({"a": 1, "b": 2, "c": 1}).identity


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"a": 1}, "no class for sample 'b'"),
        ({"a": 1, "b": 3}, "target class 3 of sample 'b'"),
        ({"a": 1, "b": -1}, "target class -1 of sample 'b'"),
        ({"a": 0, "b": 1}, "target class 0 of sample 'a'"),
    ],
)
def test_label_list_refuses_what_makes_no_sense(targets: dict[str, int], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        LabelList(targets).choose(["a", "b"], torch.tensor([0, 2]), torch.zeros(2, 3), 0)


def test_threat_model_states_the_goal() -> None:
    labels, logits = torch.tensor([0, 1]), torch.zeros(2, 3)
    assert isinstance(ThreatModel(LInf(0.1)).goal(["a", "b"], labels, logits, 0), Untargeted)
    goal = ThreatModel(LInf(0.1), LabelList({"a": 2, "b": 2})).goal(["a", "b"], labels, logits, 0)
    assert isinstance(goal, Targeted)
    assert goal.labels.tolist() == [2, 2]


# ---------------------------------------------------------------- radii in words


@given(st.integers(1, 254))
def test_grey_levels_are_read_and_written_as_fractions(level: int) -> None:
    assert parse_eps(f"{level}/255") == level / 255
    assert format_eps(level / 255) in (f"{level}/255", f"{level / 255:.1f}")  # 51/255 is just 0.2
    assert parse_eps(format_eps(level / 255)) == level / 255


@pytest.mark.parametrize("eps", [0, -1, "0", "-8/255", "8/0", "nan", "inf", float("nan"), "eight", "", None, "1e999"])
def test_radii_that_mean_nothing_are_refused(eps: object) -> None:
    with pytest.raises(BadRequest, match="eps must be"):
        parse_eps(eps)


def test_every_registered_norm_is_tested_here() -> None:
    assert {cls.name for cls in registered("norm").values()} == set(NORMS)


def test_every_norm_has_a_default_radius_and_is_measured_by_verification():
    for name, norm in registered("norm").items():
        assert norm(norm.default_eps).eps > 0, name
        assert np.isclose(verify.measure(np.array([[0.5]]), norm.name), norm(1).size(torch.tensor([[0.5]])).item())
