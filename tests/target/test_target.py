"""Access to a model, and its ledger: what is counted, what is claimed, and what verification refuses."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustassay.attacks import create
from robustassay.attacks.attack import Attack
from robustassay.errors import ModelFailed
from robustassay.evaluation.verify import ClaimedImages, measure, verify
from robustassay.target import DecisionAccess, GradientAccess, Ledger, LocalModel, NoRowsLeft, ScoreAccess
from robustassay.target.batching import LANES
from robustassay.target.claims import BestClaims, Candidates
from robustassay.threat import L0, L1, L2, Ball, LInf, Norm, Targeted, Untargeted
from tests.support.toys import CPU, Linear, Spy, images, names, open_access, open_ledger, run

NORMS: dict[str, type[Norm]] = {"Linf": LInf, "L2": L2, "L1": L1, "L0": L0}
every_norm = pytest.mark.parametrize("norm", NORMS)


def first_value_decides(values: int = 4) -> Linear:
    """Class 1 where the first value is above 0.5, else class 0."""
    weight = torch.zeros(2, values)
    weight[1, 0] = 1.0
    return Linear(weight, torch.tensor([0.0, -0.5]))


def grey(rows: int, values: int = 4, first: float = 0.4) -> Tensor:
    x = torch.full((rows, values), 0.5)
    x[:, 0] = first
    return x


def zeros(rows: int) -> Tensor:
    return torch.zeros(rows, dtype=torch.int64)


def untargeted_ledger(rows: int, norm: Norm | None = None, **settings: Any) -> Ledger:
    return open_ledger(norm or LInf(0.2), grey(rows), Untargeted(zeros(rows)), **settings)


def with_first_value(x: Tensor, *firsts: float) -> Tensor:
    """One point a value: [rows, q, ...] with these first values."""
    points = x[:, None].repeat(1, len(firsts), *(1,) * (x.dim() - 1))
    points[:, :, 0] = torch.tensor(firsts)
    return points


# ---------------------------------------------------------------- what each access shows


def test_knowledge_is_a_type() -> None:
    assert hasattr(DecisionAccess, "decisions")
    assert not hasattr(DecisionAccess, "scores")
    assert not hasattr(DecisionAccess, "gradient")
    assert hasattr(ScoreAccess, "scores")
    assert not hasattr(ScoreAccess, "gradient")
    assert hasattr(GradientAccess, "gradient")


def test_accesses_answer_what_the_model_says() -> None:
    x = images(5, (2, 3), low=0, high=1)
    model = Linear(torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(4))
    labels = torch.tensor([0, 1, 2, 3, 0])
    view = open_access(GradientAccess, model, open_ledger(LInf(0.1), x, Untargeted(labels)))
    logits = model(x).detach()
    assert torch.equal(view.scores(x), logits)
    assert torch.equal(view.decisions(x), logits.argmax(1))
    gradient, seen = view.gradient(x)
    p = logits.softmax(1) - torch.eye(4)[labels]
    torch.testing.assert_close(gradient.flatten(1), p @ model.weight.detach())
    assert torch.equal(seen, logits)


def test_many_points_a_row_get_the_answers_of_one_by_one() -> None:
    model = Linear(torch.randn(3, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(3))
    x = images(4, (2, 3))
    labels = torch.tensor([0, 1, 2, 0])
    view = open_access(GradientAccess, model, open_ledger(LInf(0.4), x, Targeted(labels)))
    points = torch.stack([images(4, (2, 3), seed) for seed in range(5)], 1)
    gradient, logits = view.gradient(points)
    assert gradient.shape == points.shape
    for q in range(5):
        one_gradient, one_logits = view.gradient(points[:, q])
        torch.testing.assert_close(gradient[:, q], one_gradient)
        torch.testing.assert_close(logits[:, q], one_logits)
        assert torch.equal(view.decisions(points)[:, q], view.decisions(points[:, q]))


def test_a_loss_of_ones_own_knows_the_goals_of_its_rows() -> None:
    """More points than one micro-batch holds: each must still meet the goal of its own row."""
    model = Linear(torch.eye(3, 6), torch.zeros(3))
    x = images(3, (6,))
    view = open_access(GradientAccess, model, open_ledger(LInf(0.4), x, Untargeted(torch.tensor([0, 1, 2]))))
    gradient, _ = view.gradient(
        x[:, None].repeat(1, 50, 1), lambda logits, goal: logits.gather(1, goal.labels[:, None])[:, 0]
    )
    assert torch.equal(gradient, torch.eye(3, 6)[:, None].expand(3, 50, 6))


def test_an_attack_cannot_reach_the_clean_images_of_the_ledger() -> None:
    ledger = untargeted_ledger(2)
    view = open_access(GradientAccess, first_value_decides(), ledger)
    view.ball.centre.zero_()
    assert torch.equal(ledger.ball.centre, grey(2))


@pytest.mark.parametrize("n", [1, LANES - 1, LANES, LANES + 1, 2 * LANES + 3])
def test_padding_shows_whole_lanes_and_returns_only_what_was_asked(n: int) -> None:
    spy = Spy(first_value_decides())
    network = LocalModel(spy, 2, CPU, batch_size=2 * LANES)
    x = images(n, (4,), low=0, high=1)
    logits = network.logits(x)
    assert logits.shape == (n, 2)
    torch.testing.assert_close(logits, spy.module(x).detach())
    assert all(len(batch) % LANES == 0 for batch in spy.seen)


# ---------------------------------------------------------------- the ledger


def test_counts_are_exact_row_by_row() -> None:
    ledger = untargeted_ledger(3)
    view = open_access(GradientAccess, first_value_decides(), ledger)
    x = grey(3)
    view.gradient(x)
    view.gradient(with_first_value(x, 0.1, 0.2, 0.3))
    view.scores(with_first_value(x, 0.1, 0.2))
    view.decisions(x)
    inner = view.subset(torch.tensor([False, True, False]))
    inner.gradient(x[1:2])
    inner.subset(torch.tensor([True])).decisions(with_first_value(x[1:2], 0.1, 0.2, 0.3, 0.4))
    assert ledger.backwards.tolist() == [4, 5, 4]
    assert ledger.queries.tolist() == [7, 12, 7]
    assert ledger.forwards.tolist() == [7, 12, 7]


def test_the_look_at_clean_images_is_free_and_claims_those_already_lost() -> None:
    x = grey(2)
    x[1, 0] = 0.9
    ledger = open_ledger(LInf(0.2), x, Untargeted(zeros(2)))
    ledger.record_clean(first_value_decides()(x).detach())
    assert ledger.claimed.tolist() == [False, True]
    assert ledger.distance.tolist() == [float("inf"), 0.0]
    assert ledger.claims.query.tolist() == [-1, 0]
    assert ledger.queries.tolist() == [0, 0]
    assert ledger.done.tolist() == [False, True]


@pytest.mark.parametrize("access", [DecisionAccess, ScoreAccess, GradientAccess])
@pytest.mark.parametrize(("budget", "q"), [(1, 1), (7, 3), (6, 3), (5, 8), (9, 2)])
def test_the_query_budget_is_cut_exactly_and_nothing_past_it_is_shown(
    access: type[DecisionAccess], budget: int, q: int
) -> None:
    spy = Spy(first_value_decides())
    ledger = untargeted_ledger(3, query_budget=budget)
    view = open_access(access, spy, ledger)
    spy.seen.clear()
    inner = view.subset(torch.tensor([True, False, False]))
    inner.decisions(grey(1, first=0.001))  # so that rows have different budgets left
    asked = 0
    for turn in range(budget + 2):
        points = with_first_value(grey(3), *(0.01 * (1 + turn * q + i) for i in range(q)))
        points[:, :, 1] = 0.1 * torch.arange(3)[:, None]  # tells the rows apart
        view.gradient(points) if access is GradientAccess else view.decisions(points)
        asked += q
        spent = min(asked, budget)
        assert ledger.queries.tolist() == [min(asked + 1, budget), spent, spent]
        assert (ledger.queries_left >= 0).all()
    shown = torch.cat(spy.seen)
    shown = shown[shown[:, 0] > 0.005]
    expected = {(row, i) for row, n in ((0, budget - 1), (1, budget), (2, budget)) for i in range(1, n + 1)}
    assert {(round(10 * b), round(100 * a)) for a, b in shown[:, :2].tolist()} == expected
    assert ledger.done.all()
    if access is GradientAccess:
        assert ledger.backwards.tolist() == [budget - 1, budget, budget]


def test_a_success_past_the_budget_does_not_exist() -> None:
    ledger = untargeted_ledger(2, query_budget=2)
    view = open_access(DecisionAccess, first_value_decides(), ledger)
    view.decisions(with_first_value(grey(2), 0.41, 0.42, 0.55))
    assert not ledger.claimed.any()
    assert ledger.done.all()


def test_an_answer_that_was_never_given_is_no_success() -> None:
    """Points past the budget are answered with zeros, which read as class 0: here, a wrong label."""
    ledger = open_ledger(LInf(0.2), grey(2, first=0.6), Untargeted(zeros(2) + 1), query_budget=2)
    view = open_access(DecisionAccess, first_value_decides(), ledger)
    view.decisions(with_first_value(grey(2), 0.61, 0.62, 0.63, 0.64))
    assert not ledger.claimed.any()
    assert ledger.lowest_margin.tolist() == pytest.approx([0.11, 0.11])


def test_a_half_paid_query_keeps_points_goals_and_answers_together() -> None:
    x = images(3, (6,))
    ledger = open_ledger(LInf(0.4), x, Untargeted(torch.tensor([0, 1, 2])), query_budget=3)
    view = open_access(GradientAccess, Linear(torch.eye(3, 6), torch.zeros(3)), ledger)
    view.subset(torch.tensor([True, False, False])).decisions(x[:1, None].repeat(1, 2, 1))
    points = torch.stack([images(3, (6,), seed) for seed in (1, 2)], 1)
    gradient, logits = view.gradient(points, lambda logits, goal: logits.gather(1, goal.labels[:, None])[:, 0])
    expected = torch.eye(3, 6)[:, None].repeat(1, 2, 1)
    expected[0, 1] = 0.0  # the first row could pay for one point only
    assert torch.equal(gradient, expected)
    answered = points[:, :, :3].clone()
    answered[0, 1] = 0.0
    assert torch.equal(logits, answered)


def test_the_first_success_is_claimed_at_its_own_query_and_iteration() -> None:
    ledger = untargeted_ledger(3)
    view = open_access(DecisionAccess, first_value_decides(), ledger)
    points = with_first_value(grey(3), 0.41, 0.42, 0.43)
    view.decisions(points)
    view.drop_finished()
    points[0, 1, 0], points[0, 2, 0], points[1, 2, 0] = 0.55, 0.58, 0.52
    view.decisions(points)
    assert ledger.claimed.tolist() == [True, True, False]
    assert ledger.claims.query.tolist() == [5, 6, -1]
    assert ledger.claims.iteration.tolist() == [1, 1, -1]
    torch.testing.assert_close(ledger.x_adv[:, 0], torch.tensor([0.55, 0.52, 0.4]))
    np.testing.assert_allclose(ledger.distance[:2].numpy(), [0.15, 0.12], atol=1e-6)
    view.decisions(with_first_value(grey(3), 0.51))
    assert ledger.claims.query.tolist() == [5, 6, 7], "an earlier claim stands"
    torch.testing.assert_close(ledger.x_adv[:, 0], torch.tensor([0.55, 0.52, 0.51]))


@every_norm
def test_points_outside_ball_or_box_are_never_claimed(norm: str) -> None:
    eps = 1.0 if norm == "L0" else 0.2
    ledger = open_ledger(NORMS[norm](eps), grey(1), Untargeted(zeros(1)))
    view = open_access(DecisionAccess, first_value_decides(), ledger)
    too_far = grey(1, first=0.4 + 0.2 + 1e-5)
    if norm == "L0":
        too_far = grey(1, first=0.55)
        too_far[0, 1] += 1e-3
    outside = grey(1, first=1 + 1e-6)
    for point in (too_far, outside):
        assert view.decisions(point).tolist() == [1], "the model is fooled"
        assert not ledger.claimed.any()
    assert ledger.lowest_margin.isinf().all(), "a margin out of reach is no margin"
    view.decisions(grey(1, first=0.55))
    assert ledger.claimed.all()


def test_an_attack_that_seeks_the_minimum_keeps_its_closest_point() -> None:
    ledger = untargeted_ledger(1, LInf(0.05), seeks_minimum=True)
    view = open_access(DecisionAccess, first_value_decides(), ledger)
    for first, closest, at in ((0.9, 0.9, 1), (0.7, 0.7, 2), (0.8, 0.7, 2), (0.45, 0.7, 2), (0.51, 0.51, 5)):
        view.decisions(grey(1, first=first))
        assert float(ledger.x_adv[0, 0]) == pytest.approx(closest)
        assert float(ledger.distance) == pytest.approx(closest - 0.4)
        assert ledger.claims.query.tolist() == [at]
    view.decisions(with_first_value(grey(1), 0.52, 0.506, 0.504, 0.509))
    assert float(ledger.x_adv[0, 0]) == pytest.approx(0.504)
    assert ledger.claims.query.tolist() == [8]
    assert not ledger.done.any()


def test_seeking_the_minimum_claims_nothing_outside_the_box() -> None:
    ledger = untargeted_ledger(1, seeks_minimum=True)
    open_access(DecisionAccess, first_value_decides(), ledger).decisions(grey(1, first=1.5))
    assert not ledger.claimed.any()


def test_seeking_the_minimum_ends_where_the_clean_image_is_already_lost() -> None:
    """Nothing is closer than the image itself: searching on would only spend queries."""
    x = grey(2)
    x[1, 0] = 0.9
    ledger = open_ledger(LInf(0.2), x, Untargeted(zeros(2)), seeks_minimum=True)
    ledger.record_clean(first_value_decides()(x).detach())
    assert ledger.done.tolist() == [False, True]


def test_lowest_margin_is_that_of_the_best_point_seen() -> None:
    ledger = untargeted_ledger(1)
    view = open_access(DecisionAccess, first_value_decides(), ledger)
    view.decisions(with_first_value(grey(1), 0.3, 0.45, 0.35))
    assert float(ledger.lowest_margin) == pytest.approx(0.05)
    view.decisions(grey(1, first=0.2))
    assert float(ledger.lowest_margin) == pytest.approx(0.05)


# ---------------------------------------------------------------- rows leave


def test_keep_lets_finished_rows_go_and_shrinks_everything_together() -> None:
    ids = names(4)
    ledger = open_ledger(LInf(0.2), grey(4), Targeted(torch.tensor([1, 1, 1, 0])))
    view = open_access(GradientAccess, first_value_decides(), ledger, ids=ids)
    x = grey(4)
    x[1:, 0] = 0.55
    view.decisions(x)
    payload = torch.arange(4)
    kept, also = view.drop_finished(x, payload)
    assert also.tolist() == [0, 3]
    assert torch.equal(kept, x[[0, 3]])
    assert view.goal.labels.tolist() == [1, 0]
    assert len(view.ball.centre) == 2
    fresh = open_access(GradientAccess, first_value_decides(), untargeted_ledger(4), ids=ids)
    assert torch.equal(view.rng.uniform(5), fresh.rng.uniform(5)[[0, 3]])
    assert view.gradient(kept)[0].shape == kept.shape
    view.drop_finished()
    assert ledger.iterations.tolist() == [2, 1, 1, 2]
    view.decisions(torch.cat((grey(1, first=0.55), grey(1))))
    with pytest.raises(NoRowsLeft):
        view.drop_finished(kept)


def test_a_spent_budget_ends_a_row() -> None:
    ledger = untargeted_ledger(2, query_budget=3)
    view = open_access(DecisionAccess, first_value_decides(), ledger)
    view.subset(torch.tensor([False, True])).decisions(with_first_value(grey(1), 0.1, 0.2, 0.3))
    (rows,) = view.drop_finished(torch.arange(2))
    assert rows.tolist() == [0]


def test_copies_of_a_row_are_asked_apart_and_finish_together() -> None:
    ledger = untargeted_ledger(3)
    view = open_access(GradientAccess, first_value_decides(), ledger)
    many = view.copied(2)
    assert torch.equal(many.ball.centre, grey(3).repeat_interleave(2, 0))
    tags = many.track(torch.arange(6))
    x = grey(6)
    x[3, 0] = 0.55  # the second copy of the middle row crosses
    gradient, logits = many.gradient(x, lambda logits, goal, wanted: logits[:, 0] * wanted, torch.arange(6.0))
    torch.testing.assert_close(gradient[5], 5 * gradient[1])
    assert logits.shape == (6, 2)
    (kept,) = many.drop_finished(x)
    assert torch.equal(kept, x[[0, 1, 4, 5]])
    assert tags().tolist() == [0, 1, 4, 5]
    assert ledger.claimed.tolist() == [False, True, False]
    assert torch.equal(ledger.x_adv[1], x[3])
    assert ledger.queries.tolist() == [2, 2, 2]
    assert ledger.iterations.tolist() == [1, 1, 1]
    (left,) = view.drop_finished(torch.arange(3))
    assert left.tolist() == [0, 2]


def test_copies_stay_within_the_budget_of_their_row() -> None:
    ledger = untargeted_ledger(2, query_budget=5)
    many = open_access(GradientAccess, first_value_decides(), ledger).copied(3)
    for _ in range(3):
        many.decisions(grey(6))
    assert ledger.queries.tolist() == [5, 5]


def test_an_access_that_checks_rarely_misses_no_claim_and_takes_none_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU rows are dropped a little late; their queries until then are counted and change nothing."""
    x = images(6, (4,), low=0.3, high=0.7)
    labels = first_value_decides()(x).argmax(1)
    at_once, at_once_adv = run(first_value_decides(), create("pgd:steps=20"), LInf(0.08), x, labels)
    monkeypatch.setattr(GradientAccess, "_skips_check", lambda view: view._iteration % 4 != 0)
    late, late_adv = run(first_value_decides(), create("pgd:steps=20"), LInf(0.08), x, labels)
    assert 0 < at_once["success"].sum() < len(x)
    assert torch.equal(late_adv, at_once_adv)
    for column in ("success", "distance", "claimed_at_iteration", "claimed_at_query"):
        assert late[column].tolist() == pytest.approx(at_once[column].tolist(), nan_ok=True)
    assert late["backwards"].sum() > at_once["backwards"].sum()


def test_a_claim_is_the_point_that_was_asked_about_whatever_becomes_of_the_tensor() -> None:
    ledger = untargeted_ledger(1)
    view = open_access(GradientAccess, first_value_decides(), ledger)
    x = grey(1, first=0.55)
    view.decisions(x)
    x.fill_(0.1)
    assert ledger.x_adv[0, 0] == pytest.approx(0.55)
    assert ledger.distance.tolist() == pytest.approx([0.15])


def test_a_view_of_no_rows_answers_with_nothing() -> None:
    view = open_access(GradientAccess, first_value_decides(), untargeted_ledger(2))
    inner = view.subset(torch.zeros(2, dtype=torch.bool))
    assert inner.decisions(grey(2)[:0]).shape == (0,)
    assert inner.gradient(grey(2)[:0])[0].shape == (0, 4)


@final
@dataclass(frozen=True)
class HalfByHalf(Attack[GradientAccess]):
    """Attacks the first half of the rows in an inner loop while the others rest, then the rest."""

    access = GradientAccess
    norms = (LInf,)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        first = torch.arange(len(x0)) < len(x0) // 2
        inner, x = view.subset(first), x0[first]
        for _ in range(3):
            x = inner.ball.step(x, inner.gradient(x)[0], inner.ball.eps)
            (x,) = inner.drop_finished(x)
        (x,) = view.drop_finished(x0)
        for _ in range(3):
            x = view.ball.step(x, view.gradient(x)[0], view.ball.eps)
            (x,) = view.drop_finished(x)
        return x


def test_rows_that_rest_survive_an_inner_loop_whose_rows_are_all_done() -> None:
    records, _ = run(first_value_decides(), HalfByHalf(), LInf(0.2), grey(6), zeros(6))
    assert records["success"].tolist() == [True] * 6


# ---------------------------------------------------------------- verification


def claims_of(x0: Tensor, x_adv: Tensor, norm: str = "Linf", eps: float = 0.25, **settings: Any) -> ClaimedImages:
    defaults: dict[str, Any] = {"wanted": zeros(len(x0)), "targeted": False, "any_distance": False}
    return ClaimedImages(x0=x0, x_adv=x_adv, norm=norm, eps=eps, **(defaults | settings))


def problem_of(x0: Tensor, x_adv: Tensor, **settings: Any) -> str | None:
    (problem,) = verify(first_value_decides(x0[0].numel()), CPU, claims_of(x0, x_adv, **settings)).problem
    return problem


def test_verify_accepts_a_plain_success() -> None:
    assert problem_of(grey(1), grey(1, first=0.6)) is None


@pytest.mark.parametrize("outside", [-1e-6, 1 + 1e-6, 1 + 2.0**-23, -(2.0**-149)])
def test_verify_refuses_one_value_outside_the_box_by_next_to_nothing(outside: float) -> None:
    x_adv = grey(1, first=0.6)
    x_adv[0, 2] = outside
    assert problem_of(grey(1), x_adv, eps=0.9) == "outside the pixel box"


@pytest.mark.parametrize(
    ("norm", "eps", "x_adv"),
    [
        ("Linf", 0.25, [0.75, 0.25, 0.75, 0.25]),
        ("L2", 0.5, [0.75, 0.25, 0.75, 0.25]),
        ("L1", 1.0, [0.75, 0.25, 0.75, 0.25]),
        ("L0", 2.0, [1.0, 0.5, 0.0, 0.5]),
    ],
)
def test_verify_accepts_the_exact_boundary_and_refuses_the_least_beyond_rounding(
    norm: str, eps: float, x_adv: list[float]
) -> None:
    x0, edge = torch.full((1, 4), 0.5), torch.tensor([x_adv])
    assert problem_of(x0, edge, norm=norm, eps=eps) is None
    beyond = edge.clone()
    if norm == "L0":
        beyond[0, 1] += 2.0**-24  # one unit in the last place of one more value
    else:
        beyond[0, 0] += 1e-5 if norm != "L2" else 4e-5
    assert problem_of(x0, beyond, norm=norm, eps=eps) == "farther than eps"
    assert problem_of(x0, beyond, norm=norm, eps=eps, any_distance=True) is None


@pytest.mark.parametrize("eps", [1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255])
@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_points_projected_onto_the_sphere_in_float32_verify(norm: str, eps: float) -> None:
    """Real pixel values, a full step and float32 arithmetic: rounding alone must not cost a success."""
    x0 = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (50, 3, 8, 8)) / 255).float()
    x0[:, 0, 0, 0] = 0.0
    radius = {"Linf": eps, "L2": 20 * eps, "L1": 200 * eps}[norm]
    ball = Ball(NORMS[norm](radius), x0, torch.full((50,), radius))
    x_adv = ball.project(x0 + 10 * torch.randn(x0.shape, generator=torch.Generator().manual_seed(0)))
    assert (ball.distance(x_adv) > 0.99 * radius).all(), "the points sit on the sphere"
    verdict = verify(first_value_decides(192), CPU, claims_of(x0, x_adv, norm=norm, eps=radius))
    assert verdict.within_eps.all()
    assert set(verdict.problem) <= {None, "goal not reached"}


def test_verify_refuses_what_does_not_reach_the_goal() -> None:
    assert problem_of(grey(1), grey(1, first=0.45)) == "goal not reached"
    one = torch.ones(1, dtype=torch.int64)
    assert problem_of(grey(1), grey(1, first=0.45), wanted=one, targeted=True) == "goal not reached"
    assert problem_of(grey(1), grey(1, first=0.6), wanted=one, targeted=True) is None


def test_verify_decides_ties_for_the_lowest_index() -> None:
    tie = grey(1, first=0.5)  # both logits are 0: the label is class 0
    assert problem_of(grey(1), tie) == "goal not reached"
    assert problem_of(grey(1), tie, wanted=zeros(1), targeted=True) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_verify_refuses_what_is_no_number(value: float) -> None:
    x_adv = grey(1, first=0.6)
    x_adv[0, 3] = value
    assert problem_of(grey(1), x_adv, any_distance=True) == "not a number"


def test_each_claim_is_judged_alone() -> None:
    """More claims than one verifying batch: the same verdicts as one by one, in any order."""
    x0 = images(70, (4,), low=0.3, high=0.7)
    x_adv = images(70, (4,), seed=1, low=-0.01, high=1.01)
    model = first_value_decides()
    whole = verify(model, CPU, claims_of(x0, x_adv, eps=0.45))
    assert len(set(whole.problem)) == 4, "all kinds of verdict are present"
    for row in range(70):
        one = verify(model, CPU, claims_of(x0[row : row + 1], x_adv[row : row + 1], eps=0.45))
        assert one.problem == [whole.problem[row]]
        assert one.distance[0] == whole.distance[row]
        assert one.margin[0] == whole.margin[row]


def test_no_claims_is_no_problem() -> None:
    assert verify(first_value_decides(), CPU, claims_of(grey(2)[:0], grey(2)[:0])).problem == []


@every_norm
def test_verified_distances_equal_those_of_the_ball(norm: str) -> None:
    draw = np.random.default_rng(0)
    x0 = images(20, (3, 6, 5))
    mask = torch.from_numpy(draw.random(x0.shape) < 0.5)
    x = torch.where(mask, x0, images(20, (3, 6, 5), seed=1))
    ball = Ball(NORMS[norm](1.0), x0, torch.ones(20))
    verdict = verify(first_value_decides(90), CPU, claims_of(x0, x, norm=norm))
    np.testing.assert_allclose(verdict.distance, ball.distance(x).numpy(), rtol=1e-13)
    np.testing.assert_array_equal(verdict.distance, measure((x - x0).double().flatten(1).numpy(), norm)) if (
        norm == "L0"
    ) else None


@pytest.mark.parametrize("targeted", [False, True])
def test_verified_labels_and_margins_are_those_of_the_logits(targeted: bool) -> None:
    model = Linear(torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(4))
    x, wanted = images(30, (6,), low=0, high=1), torch.arange(30) % 4
    verdict = verify(model, CPU, claims_of(x, x, wanted=wanted, targeted=targeted))
    for row, logits in enumerate(model(x).tolist()):
        own = logits.pop(int(wanted[row]))
        margin = own - max(logits)
        assert verdict.margin[row] == pytest.approx(-margin if targeted else margin, abs=1e-6)
        assert (verdict.problem[row] is None) == (margin > 0 if targeted else margin < 0)
    assert verdict.label.tolist() == model(x).argmax(1).tolist()


def test_eight_bits_are_looked_at_apart() -> None:
    fine, coarse = 0.5 + 1 / 1000, 0.5 + 3 / 255
    assert verify(first_value_decides(), CPU, claims_of(grey(1), grey(1, first=fine))).uint8_ok.tolist() == [True]
    model = Linear(torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, -0.5025]))  # class 1 above 0.5025 = 128.1 / 255
    x0 = torch.tensor([[0.45]])
    near = verify(model, CPU, claims_of(x0, torch.tensor([[0.5027]])))
    far = verify(model, CPU, claims_of(x0, torch.tensor([[coarse]])))
    assert near.problem == far.problem == [None]
    assert near.uint8_ok.tolist() == [False]
    assert far.uint8_ok.tolist() == [True]


# ---------------------------------------------------------------- an attack that lies


@final
@dataclass(frozen=True)
class Liar(Attack[GradientAccess]):
    """Forges the ledger: writes a point into it that never passed through a query."""

    access = GradientAccess
    norms = (LInf,)
    first: float = 0.6
    second: float = 0.5

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        ledger = view._ledger
        ledger.x_adv[:, 0], ledger.x_adv[:, 1] = self.first, self.second
        ledger.distance[:] = 0.01
        ledger.claims.iteration[:] = ledger.claims.query[:] = 1
        return x0


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (0.45, 0.5, "goal not reached"),
        (0.7, 0.5, "farther than eps"),
        (1.5, 0.5, "outside the pixel box"),
        (float("nan"), 0.5, "not a number"),
        (0.59, 0.99, "farther than eps"),
    ],
)
def test_a_forged_success_is_recorded_as_invalid_and_not_counted(first: float, second: float, problem: str) -> None:
    lie = Liar()
    object.__setattr__(lie, "first", first)
    object.__setattr__(lie, "second", second)
    records, x_adv = run(first_value_decides(), lie, LInf(0.2), grey(3), zeros(3))
    assert records["claimed"].all()
    assert records["valid"].tolist() == [False] * 3
    assert records["problem"].tolist() == [problem] * 3
    assert not records["success"].any()
    assert records["uint8_ok"].isna().all()
    assert torch.equal(x_adv, grey(3)), "an image that did not verify is not handed out"


def test_a_true_claim_verifies_whoever_wrote_it() -> None:
    """The counterpart: the forger's tests fail for the lie, not for the forging."""
    records, x_adv = run(first_value_decides(), Liar(), LInf(0.21), grey(3), zeros(3))
    assert records["success"].all()
    assert records["distance"].tolist() == pytest.approx([0.2] * 3), "measured afresh, not the forged 0.01"
    assert torch.equal(x_adv[:, 0], torch.full((3,), 0.6))


class OtherShape(nn.Module):
    """Leaves out a class for dark images."""

    def forward(self, x):
        logits = x.flatten(1)[:, :3]
        return logits if bool((x > 0.1).all()) else logits[:, :2]


def test_outputs_of_another_shape_for_some_images_are_a_failure_of_the_model():
    target = LocalModel(OtherShape().eval(), 3, CPU)
    assert target.logits(torch.full((2, 1, 2, 2), 0.5)).shape == (2, 3)
    with pytest.raises(ModelFailed, match=r"shape \(8, 2\) for 8 images and 3 classes"):
        target.logits(torch.zeros(2, 1, 2, 2))


class BackwardFails(torch.autograd.Function):
    """Gives the first three values as logits, and fails on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3].clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        raise NotImplementedError("no gradient here")


class NoWayBack(nn.Module):
    """The function above as a model."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = BackwardFails.apply(x)
        return logits


def test_an_error_in_the_backward_pass_is_a_failure_of_the_model():
    target, x = LocalModel(NoWayBack().eval(), 3, CPU), torch.rand(2, 1, 2, 2)
    with pytest.raises(ModelFailed, match=r"gradient could not be computed.*no gradient here"):
        target.gradient(x, lambda logits, goal: logits[:, 0], Untargeted(torch.zeros(2, dtype=torch.int64)))
    with pytest.raises(ModelFailed, match=r"gradient could not be computed.*no gradient here"):
        target.jacobian(x, torch.zeros(2, 1, dtype=torch.int64))


# ---------------------------------------------------------------- precision


class NotesPrecision(nn.Module):
    """Remembers whether products may be computed in TF32."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: set[tuple[bool, str]] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.allowed.add((torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))
        return torch.stack((x.flatten(1).sum(1), -x.flatten(1).sum(1)), 1)


def test_tf32_is_used_only_where_it_is_asked_for() -> None:
    module, x = NotesPrecision(), grey(3)
    model = LocalModel.of(module, x, CPU)
    model.logits(x)
    model.gradient(x, lambda logits, goal: logits[..., 0], Untargeted(zeros(3)))
    assert module.allowed == {(False, "highest")}
    module.allowed.clear()
    quick = model.in_tf32().with_module(module).with_head(lambda inner: inner, 2)
    quick.logits(x)
    quick.gradient(x, lambda logits, goal: logits[..., 0], Untargeted(zeros(3)))
    assert module.allowed == {(True, "high")}
    assert torch.get_float32_matmul_precision() == "highest"
    module.allowed.clear()
    model.logits(x)
    assert module.allowed == {(False, "highest")}


# ---------------------------------------------------------------- waits for the device


def random_candidates(rows: Tensor, seed: int, q: int) -> Candidates:
    """Candidates with ties, some of which count."""
    draw = torch.Generator().manual_seed(seed)
    size = (len(rows), q)
    distance = torch.randint(1, 6, size, generator=draw).double()
    counts, margin = torch.rand(size, generator=draw) < 0.5, torch.rand(size, generator=draw)
    x = torch.rand(*size, 4, generator=draw)
    return Candidates(rows, x, counts, distance, margin, torch.full((len(rows),), seed), rows * 10 + seed * q, seed % 2)


@pytest.mark.parametrize("q", [1, 3])
def test_candidates_compared_together_make_the_claims_of_one_after_the_other(q: int) -> None:
    together, alone = (BestClaims(grey(6), closest=True) for _ in range(2))
    all_rows, some = torch.arange(6), torch.tensor([1, 4])
    for seed in range(1, 30):
        candidates = random_candidates(some if 10 < seed < 20 else all_rows, seed, q)
        together.add(candidates)
        alone.add(candidates)
        alone.settle()
    together.settle()
    for name in ("x_adv", "distance", "margin", "iteration", "query", "stage"):
        assert torch.equal(getattr(together, name), getattr(alone, name)), name
    eps = torch.ones(6)
    assert together.improvements(eps) == alone.improvements(eps)
    assert sum(map(len, alone.improvements(eps))) > 6


def test_of_thousands_of_improvements_those_hardly_closer_are_left_out() -> None:
    claims, rows = BestClaims(grey(1), closest=True), torch.zeros(1, dtype=torch.int64)
    for at in range(3000):
        distance = torch.tensor([[3.0 - at / 1500]], dtype=torch.float64)
        ones = torch.ones(1, dtype=torch.int64)
        claims.add(
            Candidates(rows, grey(1)[:, None], torch.ones(1, 1).bool(), distance, -distance.float(), ones, ones * at, 0)
        )
    claims.settle()
    (kept,) = claims.improvements(torch.tensor([2.0]))
    distances = [claim["distance"] for claim in kept]
    assert len(kept) < 700
    assert [claim["query"] for claim in kept[:100]] == [*range(1, 101)]
    assert next(claim for claim in kept if claim["distance"] <= 2)["query"] == 1501, "the first one within eps"
    assert kept[-1]["query"] == 3000
    assert distances == sorted(distances, reverse=True)


def test_a_search_of_the_minimum_looks_for_finished_rows_only_where_there_can_be_some() -> None:
    ledger = untargeted_ledger(2, seeks_minimum=True, query_budget=100)
    access, looked = open_access(DecisionAccess, first_value_decides(), ledger), list[Ledger]()
    access._on_step = looked.append
    for _ in range(40):
        access.decisions(grey(2))
        access.drop_finished()
    assert len(looked) == 2, "at the start, and once in 32 iterations"
    access.mark_finished(torch.tensor([True, False]))
    (left,) = access.drop_finished(torch.arange(2))
    assert left.tolist() == [1]
    for _ in range(59):
        access.decisions(grey(1))
        access.drop_finished()
    access.decisions(grey(1))
    with pytest.raises(NoRowsLeft):
        access.drop_finished()
    assert ledger.queries.tolist() == [40, 100]


def test_of_a_random_model_a_farther_claim_with_a_larger_margin_takes_the_place_of_a_refused_one() -> None:
    ledger = untargeted_ledger(1, seeks_minimum=True)
    ledger.record_clean(torch.tensor([[0.1, 0.0]]))
    ledger.expect_noise(torch.tensor([0.1]))
    rows, points = torch.tensor([0]), with_first_value(grey(1), 0.6, 0.9, 0.7)
    logits = torch.tensor([[[0.0, 0.15], [0.0, 1.0], [0.0, 0.25]]])  # 1.5, 10 and 2.5 times the noise
    ledger.record(rows, points, logits, None, (1, 0))
    distances = [float(ledger.distance)]
    for level in range(ledger.surer_levels):
        ledger.reject(rows, torch.tensor([0.1]), ["goal not reached"])
        assert not ledger.claimed.any()
        ledger.take_surer_claims(rows, level)
        distances.append(float(ledger.distance))
        assert ledger.claims.improvements(torch.ones(1))[0][-1]["distance"] == distances[-1]
    assert distances == pytest.approx([0.2, 0.3, 0.5, 0.5])
    assert untargeted_ledger(1, seeks_minimum=True).surer_levels == 0, "a model without draws needs none"
