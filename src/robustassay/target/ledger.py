"""Counts the queries and passes of every row, and keeps its best claim, where no attack can change them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from robustassay.target.claims import NEVER, SURER, BestClaims, Candidates
from robustassay.target.margin_trace import MarginTrace
from robustassay.target.objectives import BestPoints, Cost
from robustassay.threat import Ball, Goal, per_row

__all__ = ["NEVER", "Ledger"]


@final
@dataclass(frozen=True)
class _RowThreat:
    """Ball, goal and radius of some rows: they decide which points count as claims."""

    rows: Tensor
    ball: Ball
    goal: Goal
    radius: Tensor


class Ledger:
    """The counts and claims of one wave.

    A claim is a point with values in [0, 1] that reached the goal: the first one inside the ball for an attack with a
    fixed radius, the closest one for an attack that seeks the minimum. Claims are verified elsewhere. With a
    `margin_error`, a claim's margin must not be above minus this error, and the point of lowest margin of each row is
    kept for a check on the exact model. A claim's margin must not be above the `margin_limit` of its row.
    """

    def __init__(
        self,
        ball: Ball,
        goal: Goal,
        seeks_minimum: bool,
        query_budget: int | None,
        objectives: Mapping[str, Cost] | None = None,
        margin_error: float = 0.0,
    ) -> None:
        rows, device = len(ball.centre), ball.centre.device
        self.ball, self.goal = ball, goal
        self.seeks_minimum = seeks_minimum
        self.query_budget = query_budget
        self.lowest_margin = torch.full((rows,), torch.inf, device=device)
        self.clean_margin = self.lowest_margin
        self.trace = MarginTrace(rows, device)
        self.clean_logits: Tensor | None = None
        self.lowest_margin_logits: Tensor | None = None
        self.margin_limit = torch.full((rows,), torch.inf, device=device)  # a claim's margin must not be above this
        self.margin_error = margin_error
        self.lowest_margin_point = ball.centre.clone() if margin_error else None
        self.noise = torch.zeros(rows, device=device)
        self._counts = torch.zeros((rows, 4), dtype=torch.int64, device=device)
        self.iterations, self.forwards, self.backwards, self.queries = self._counts.unbind(1)
        self.marked_finished = torch.zeros(rows, dtype=torch.bool, device=device)
        self._claims = BestClaims(ball.centre, closest=seeks_minimum)
        self._surer_claims: list[BestClaims] = []  # with larger margins than the closest ones
        self._max_spent = self.marks = self.surer_levels = 0  # `marks`: how often rows were marked
        self._stages: list[str | None] = [None]
        self._pass_counts: dict[tuple[int, int], Tensor] = {}
        self._row_threat: _RowThreat | None = None
        self.rejected: dict[int, str] = {}
        self.objectives = {name: BestPoints(cost, ball.centre) for name, cost in (objectives or {}).items()}
        self._never_done = False
        self._main: Ledger | None = None
        self._main_rows = torch.arange(rows, device=device)

    @classmethod
    def never_done(cls, ball: Ball, goal: Goal) -> "Ledger":
        """Return a ledger in which no row is ever done, for an attack that must run all its steps."""
        ledger = cls(ball, goal, seeks_minimum=False, query_budget=None)
        ledger._never_done = True
        return ledger

    def with_radii(self, rows: Tensor, eps: Tensor) -> "Ledger":
        """Return a ledger of some rows with other fixed radii; what it records is recorded here too."""
        ledger = Ledger(
            Ball(self.ball.norm, self.ball.centre[rows], eps), self.goal.among(rows), False, self.query_budget
        )
        ledger.lowest_margin, ledger.clean_margin = self.clean_margin[rows], self.clean_margin[rows]
        ledger.margin_limit, ledger.noise = self.margin_limit[rows], self.noise[rows]
        ledger._main, ledger._main_rows = self, rows
        return ledger

    def begin_stage(self, stage: str | None) -> None:
        """Record further claims under the name of this stage."""
        self._stages.append(stage)

    @contextmanager
    def without_margin_error(self, stage: str) -> Iterator[None]:
        """Record claims of the exact model, in a stage of its own."""
        before, margin_error = self._stages[-1], self.margin_error
        self.begin_stage(stage)
        self.margin_error = 0.0
        try:
            yield
        finally:
            self.begin_stage(before)
            self.margin_error = margin_error

    @property
    def claims(self) -> BestClaims:
        """The best claim of each row."""
        return self._claims.settle()

    @property
    def claimed_by(self) -> list[str | None]:
        """The stage that made each row's claim; None for a row without a claim or an attack without stages."""
        return [self._stages[at] for at in self.claims.stage.tolist()]

    @property
    def main(self) -> "Ledger":
        """The ledger of the whole wave."""
        return self._main or self

    def end_iteration(self, rows: Tensor, iterations: Tensor | None = None) -> None:
        """Count one more iteration of these rows, or the number given for each."""
        self.iterations.index_add_(0, rows, torch.ones_like(rows) if iterations is None else iterations)
        if self._main is not None:
            self._main.end_iteration(self._main_rows[rows], iterations)

    @property
    def claimed(self) -> Tensor:
        """Say which rows have a claim."""
        return self.claims.made

    @property
    def distance(self) -> Tensor:
        """The distance of each row's claim from its clean image; infinite for a row without one."""
        return self.claims.distance

    @property
    def x_adv(self) -> Tensor:
        """The points claimed; clean images for rows without one."""
        return self.claims.x_adv

    @property
    def done(self) -> Tensor:
        """Say which rows are finished.

        For a fixed radius: a claim was made. For a minimum-norm attack: the clean image already reaches the goal. For
        both: the budget is spent, or the attack marked the row as finished.
        """
        if self._never_done:
            return torch.zeros_like(self.marked_finished)
        finished = self.marked_finished | (self.distance == 0 if self.seeks_minimum else self.claimed)
        return finished if self.query_budget is None else finished | (self.queries_left == 0)

    @property
    def may_finish_rows(self) -> bool:
        """Whether a row may be done without a mark: the search of a minimum ends by marks, or with the budget."""
        return not self.seeks_minimum or not self.has_budget_for_all(1)

    @property
    def queries_left(self) -> Tensor:
        """Count the queries each row may still make."""
        assert self.query_budget is not None
        return self.query_budget - self.main.queries[self._main_rows]

    def has_budget_for_all(self, points: int) -> bool:
        """Say whether every row has budget for this many points, as far as is known without a copy from the device."""
        return self.query_budget is None or self.main._max_spent + points <= self.query_budget

    def record_clean(self, logits: Tensor) -> None:
        """Claim the clean images that reach the goal; the evaluation asks about them, so they cost no query."""
        reached = self.goal.reached(logits)
        rows = torch.arange(len(reached), device=reached.device)
        self.lowest_margin = self.clean_margin = self.goal.margin(logits)
        self.clean_logits, self.lowest_margin_logits = logits, logits.clone()
        self.trace.restart(rows, self.clean_margin)
        self.claims.claim_clean(reached)
        for best in self.objectives.values():
            best.add(rows, self.ball.centre[:, None], reached[:, None])

    def expect_noise(self, noise: Tensor) -> None:
        """Claim only margins larger than their standard error, for a model that draws random numbers."""
        self.noise = noise
        self.margin_limit = torch.where(noise > 0, -noise, self.margin_limit)
        if self.seeks_minimum:
            self._surer_claims = [BestClaims(self.ball.centre, closest=True) for _ in SURER]
            self.surer_levels = len(SURER)

    def take_surer_claims(self, rows: Tensor, level: int) -> None:
        """Give these rows, whose claims were taken back, those with a larger margin."""
        self.claims.replace_by(self._surer_claims[level].settle(), rows)

    def reject(self, rows: Tensor, verified_margin: Tensor, problems: list[str]) -> None:
        """Remove claims that did not verify, and record why; the next claim of these rows needs a lower margin."""
        claims = self.claims
        self.rejected |= dict(zip(rows.tolist(), problems, strict=True))
        error = (verified_margin - claims.margin[rows]).abs() + claims.margin[rows].abs()
        stricter = torch.where(self.noise[rows] > 0, self.margin_limit[rows] - self.noise[rows], -2 * error)
        self.margin_limit[rows] = torch.minimum(self.margin_limit[rows], stricter)
        claims.take_back(rows)
        if self.lowest_margin_point is not None:
            self.lowest_margin_point[rows] = self.ball.centre[rows]
            self._forget_lowest(rows)
        for best in self.objectives.values():
            best.remove(rows)

    def claim_lowest_margin_points(self, rows: Tensor, logits: Tensor) -> Tensor:
        """Claim the points of lowest margin that reach the goal on the exact model; return their margins.

        The evaluation asks about them, as about the clean images, so they cost no query.
        """
        assert self.lowest_margin_point is not None
        x, threat = self.lowest_margin_point[rows][:, None], self._threat_of(rows)
        margin = threat.goal.margin(logits)
        reached = threat.goal.reached(logits) & (margin <= self.margin_limit[rows])
        candidates = self._candidates(rows, x, reached[:, None], threat.ball.distance(x), margin[:, None])
        self._claims.add(replace(candidates, queries=candidates.queries - 1))  # the point was counted before
        return margin

    def require_margin(self, rows: Tensor, margin: float) -> None:
        """Claim, from now on, only points that reach the goal by this margin or more."""
        self.margin_limit[rows] = self.margin_limit[rows].clamp(max=-margin)

    def record(
        self,
        rows: Tensor,
        x: Tensor,
        logits: Tensor,
        sent: Tensor | None,
        passes: tuple[int, int],
        in_turn: bool = False,
    ) -> None:
        """Count the points `[rows, q, ...]` of these rows, in order, and claim the best of them.

        `sent` says which points count as sent, if not all: nothing is recorded of the others. `passes` are the forward
        and backward passes that each point cost. With `in_turn`, each point is an iteration of its own.
        """
        threat = self._threat_of(rows)
        distance, in_box = threat.ball.distance(x), threat.ball.in_box(x)
        if sent is not None:
            in_box &= sent
        feasible = in_box & (distance <= threat.radius)
        seen = threat.goal.margin(logits)
        margin = torch.where(feasible, seen, torch.inf)
        self._note_lowest(rows, x, logits, margin)
        limit = self.margin_limit[rows].clamp(max=-self.margin_error) if self.margin_error else self.margin_limit[rows]
        reached = threat.goal.reached(logits) & (seen <= limit[:, None])
        counts = reached & (in_box if self.seeks_minimum else feasible)
        candidates = self._candidates(rows, x, counts, distance, seen)
        self._claims.add(replace(candidates, in_turn=in_turn))
        for factor, surer in zip(SURER, self._surer_claims, strict=False):
            surely = counts & (seen <= -factor * self.noise[rows][:, None])
            surer.add(replace(candidates, counts=surely, in_turn=in_turn))
        if self._main is None:
            self.trace.add(rows, candidates.queries, margin, sent)
        for best in self.objectives.values():
            best.add(rows, x, reached & in_box)
        self._count_queries(rows, x.shape[1] if sent is None else sent.sum(1), passes)
        self._max_spent += x.shape[1]
        if self._main is not None:
            self._main.record(self._main_rows[rows], x, logits, sent, passes, in_turn)

    def _threat_of(self, rows: Tensor) -> _RowThreat:
        """Return ball, goal and radius of these rows, cached: most queries are for the same rows as the one before."""
        if self._row_threat is None or self._row_threat.rows is not rows:
            ball = self.ball.among(rows)
            self._row_threat = _RowThreat(rows, ball, self.goal.among(rows), ball.reach[:, None])
        return self._row_threat

    def _candidates(self, rows: Tensor, x: Tensor, counts: Tensor, distance: Tensor, margin: Tensor) -> Candidates:
        iterations, _, _, queries = self._counts[rows].unbind(1)
        # Iteration 0 is the clean image; a start point counts as iteration 1.
        return Candidates(rows, x, counts, distance, margin, iterations.clamp(min=1), queries, len(self._stages) - 1)

    def _note_lowest(self, rows: Tensor, x: Tensor, logits: Tensor, margin: Tensor) -> None:
        """Update the lowest margin of each row, its logits, and its point if the exact model will check it."""
        before = self.lowest_margin[rows]
        lowest, at = margin.min(1) if margin.shape[1] > 1 else (margin[:, 0], None)
        self.lowest_margin = self.lowest_margin.index_copy(0, rows, torch.minimum(before, lowest))
        lower = lowest < before
        for kept, values in ((self.lowest_margin_logits, logits), (self.lowest_margin_point, x)):
            if kept is not None:
                picked = values[:, 0] if at is None else values[torch.arange(len(at), device=at.device), at]
                kept.index_copy_(0, rows, torch.where(per_row(lower, picked), picked, kept[rows]))

    def _forget_lowest(self, rows: Tensor) -> None:
        """Begin again with the margin of the clean image."""
        clean = self.clean_margin[rows]
        self.lowest_margin = self.lowest_margin.index_copy(0, rows, clean)
        self.trace.restart(rows, clean)
        if self.lowest_margin_logits is not None and self.clean_logits is not None:
            self.lowest_margin_logits[rows] = self.clean_logits[rows]

    def _count_queries(self, rows: Tensor, points: int | Tensor, passes: tuple[int, int]) -> None:
        if passes not in self._pass_counts:  # kept on the device: a copy takes longer than the addition
            self._pass_counts[passes] = self._counts.new_tensor((0, *passes, 1))
        added = self._pass_counts[passes] * (points[:, None] if isinstance(points, Tensor) else points)
        self._counts.index_add_(0, rows, added.expand(len(rows), -1))
