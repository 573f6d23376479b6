"""What every query cost and the best it found, row by row, kept where no attack can touch it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from robustassay.target.claims import NEVER, Claims, Offer
from robustassay.target.objectives import BestPoints, Cost
from robustassay.threat import Ball, Goal, per_row

__all__ = ["NEVER", "Ledger"]


@final
@dataclass(frozen=True)
class _Sight:
    """What the points of some rows are judged by."""

    rows: Tensor
    ball: Ball
    goal: Goal
    radius: Tensor


class Ledger:
    """The books of one wave.

    A claim is a point inside the box that reached the goal: the first one inside the ball for an attack on a
    fixed budget, the closest one for an attack that seeks the minimum. Claims are verified elsewhere. Where margins
    are seen only up to a `doubt`, a claim must clear it, and the nearest miss of each row is kept for a closer look.
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
        self.required_margin = torch.full((rows,), torch.inf, device=device)
        self.margin_error = margin_error
        self.nearest_miss = ball.centre.clone() if margin_error else None
        self.noise = torch.zeros(rows, device=device)
        self._counts = torch.zeros((rows, 4), dtype=torch.int64, device=device)
        self.iterations, self.forwards, self.backwards, self.queries = self._counts.unbind(1)
        self.marked_finished = torch.zeros(rows, dtype=torch.bool, device=device)
        self._claims = Claims(ball.centre, closest=seeks_minimum)
        self._stages: list[str | None] = [None]
        self._most_spent = 0
        self._prices: dict[tuple[int, int], Tensor] = {}
        self._sight: _Sight | None = None
        self.rejected: dict[int, str] = {}
        self.objectives = {name: BestPoints(cost, ball.centre) for name, cost in (objectives or {}).items()}
        self._never_done = False
        self._main: Ledger | None = None
        self._main_rows = torch.arange(rows, device=device)

    @classmethod
    def never_done(cls, ball: Ball, goal: Goal) -> "Ledger":
        """Open books in which no row is ever done, for an attack that is to run all its steps."""
        books = cls(ball, goal, seeks_minimum=False, query_budget=None)
        books._never_done = True
        return books

    def with_radii(self, rows: Tensor, eps: Tensor) -> "Ledger":
        """Open books for some rows on a fixed budget of other radii; all that is booked there is booked here too."""
        books = Ledger(
            Ball(self.ball.norm, self.ball.centre[rows], eps), self.goal.among(rows), False, self.query_budget
        )
        books.lowest_margin, books.clean_margin = self.clean_margin[rows], self.clean_margin[rows]
        books.required_margin, books.noise = self.required_margin[rows], self.noise[rows]
        books._main, books._main_rows = self, rows
        return books

    def begin_stage(self, stage: str | None) -> None:
        """Book claims under this name from here on."""
        self._stages.append(stage)

    @contextmanager
    def without_margin_error(self, stage: str) -> Iterator[None]:
        """Book for a while what is seen exactly, under a name of its own."""
        before, margin_error = self._stages[-1], self.margin_error
        self.begin_stage(stage)
        self.margin_error = 0.0
        try:
            yield
        finally:
            self.begin_stage(before)
            self.margin_error = margin_error

    @property
    def claims(self) -> Claims:
        """What each row has to show."""
        return self._claims.settle()

    @property
    def claimed_by(self) -> list[str | None]:
        """The stage that made each row's claim, where it has one and stages have names."""
        return [self._stages[at] for at in self.claims.stage.tolist()]

    @property
    def main(self) -> "Ledger":
        """The books of the whole wave."""
        return self._main or self

    def end_iteration(self, rows: Tensor) -> None:
        """Count one more iteration of these rows."""
        self.iterations.index_add_(0, rows, torch.ones_like(rows))
        if self._main is not None:
            self._main.end_iteration(self._main_rows[rows])

    @property
    def claimed(self) -> Tensor:
        """Say which rows have a point to show."""
        return self.claims.made

    @property
    def distance(self) -> Tensor:
        """How far each row's claim is from its clean image; infinite for a row without one."""
        return self.claims.distance

    @property
    def x_adv(self) -> Tensor:
        """The points claimed; clean images for rows without one."""
        return self.claims.x_adv

    @property
    def done(self) -> Tensor:
        """Say which rows have nothing left to do: goal reached (at no distance, if that is sought), or budget spent."""
        if self._never_done:
            return torch.zeros_like(self.marked_finished)
        finished = self.marked_finished | (self.distance == 0 if self.seeks_minimum else self.claimed)
        return finished if self.query_budget is None else finished | (self.queries_left == 0)

    @property
    def queries_left(self) -> Tensor:
        """Count the queries each row may still make."""
        assert self.query_budget is not None
        return self.query_budget - self.main.queries[self._main_rows]

    def surely_affords(self, points: int) -> bool:
        """Say whether every row can pay for so many points, as far as is known without asking the device."""
        return self.query_budget is None or self.main._most_spent + points <= self.query_budget

    def record_clean(self, logits: Tensor) -> None:
        """Claim the clean images that reach the goal as they are; this look is the evaluator's and is free."""
        reached = self.goal.reached(logits)
        self.lowest_margin = self.clean_margin = self.goal.margin(logits)
        self.claims.clean(reached)
        for best in self.objectives.values():
            best.offer(torch.arange(len(reached), device=reached.device), self.ball.centre[:, None], reached[:, None])

    def expect_noise(self, noise: Tensor) -> None:
        """Of a model that draws random numbers, claim only what clears the error of a margin as it is seen."""
        self.noise = noise
        self.required_margin = torch.where(noise > 0, -noise, self.required_margin)

    def reject(self, rows: Tensor, verified_margin: Tensor, problems: list[str]) -> None:
        """Take back claims that did not verify, but not forget them; the next one must clear the error there was."""
        claims = self.claims
        self.rejected |= dict(zip(rows.tolist(), problems, strict=True))
        error = (verified_margin - claims.margin[rows]).abs() + claims.margin[rows].abs()
        clearer = torch.where(self.noise[rows] > 0, self.required_margin[rows] - self.noise[rows], -2 * error)
        self.required_margin[rows] = torch.minimum(self.required_margin[rows], clearer)
        claims.take_back(rows)
        if self.nearest_miss is not None:
            self.nearest_miss[rows] = self.ball.centre[rows]
            self.lowest_margin = self.lowest_margin.index_copy(0, rows, self.clean_margin[rows])
        for best in self.objectives.values():
            best.forget(rows)

    def claim_nearest_misses(self, rows: Tensor, logits: Tensor) -> Tensor:
        """Claim the nearest misses that reach the goal when seen exactly; return their margins.

        This look, like that at the clean images, is the evaluator's and is free.
        """
        assert self.nearest_miss is not None
        x, sight = self.nearest_miss[rows][:, None], self._looking_at(rows)
        margin = sight.goal.margin(logits)
        reached = sight.goal.reached(logits) & (margin <= self.required_margin[rows])
        offer = self._offer(rows, x, reached[:, None], sight.ball.distance(x), margin[:, None])
        self._claims.take(replace(offer, queries=offer.queries - 1))  # the point was asked about before
        return margin

    def require_margin(self, rows: Tensor, margin: float) -> None:
        """From now on, claim only points that reach the goal by this margin or more."""
        self.required_margin[rows] = self.required_margin[rows].clamp(max=-margin)

    def record(self, rows: Tensor, x: Tensor, logits: Tensor, sent: Tensor | None, passes: tuple[int, int]) -> None:
        """Book the points `[rows, q, ...]` of these rows, in order, and claim the best of them.

        `sent` says which points the budget paid for, if not all; the others were never shown to the model. `passes` are
        the forward and the backward passes that each point cost.
        """
        sight = self._looking_at(rows)
        distance, in_box = sight.ball.distance(x), sight.ball.in_box(x)
        if sent is not None:
            in_box &= sent
        feasible = in_box & (distance <= sight.radius)
        seen = sight.goal.margin(logits)
        self._note_lowest(rows, x, torch.where(feasible, seen, torch.inf))
        required = (
            self.required_margin[rows].clamp(max=-self.margin_error)
            if self.margin_error
            else self.required_margin[rows]
        )
        reached = sight.goal.reached(logits) & (seen <= required[:, None])
        counts = reached & (in_box if self.seeks_minimum else feasible)
        self._claims.take(self._offer(rows, x, counts, distance, seen))
        for best in self.objectives.values():
            best.offer(rows, x, reached & in_box)
        self._charge(rows, x.shape[1] if sent is None else sent.sum(1), passes)
        self._most_spent += x.shape[1]
        if self._main is not None:
            self._main.record(self._main_rows[rows], x, logits, sent, passes)

    def _looking_at(self, rows: Tensor) -> _Sight:
        """Return what these rows are judged by; the same rows are asked about again and again."""
        if self._sight is None or self._sight.rows is not rows:
            ball = self.ball.among(rows)
            self._sight = _Sight(rows, ball, self.goal.among(rows), ball.reach[:, None])
        return self._sight

    def _offer(self, rows: Tensor, x: Tensor, counts: Tensor, distance: Tensor, margin: Tensor) -> Offer:
        iterations, _, _, queries = self._counts[rows].unbind(1)
        # Iteration 0 is the clean image; a start point counts as iteration 1.
        return Offer(rows, x, counts, distance, margin, iterations.clamp(min=1), queries, len(self._stages) - 1)

    def _note_lowest(self, rows: Tensor, x: Tensor, margin: Tensor) -> None:
        """Remember the lowest margin of each row so far, and where it was seen if a closer look may come."""
        before = self.lowest_margin[rows]
        lowest, at = margin.min(1) if margin.shape[1] > 1 else (margin[:, 0], None)
        self.lowest_margin = self.lowest_margin.index_copy(0, rows, torch.minimum(before, lowest))
        if self.nearest_miss is not None:
            picked = x[:, 0] if at is None else x[torch.arange(len(at), device=at.device), at]
            nearer = per_row(lowest < before, picked)
            self.nearest_miss[rows] = torch.where(nearer, picked, self.nearest_miss[rows])

    def _charge(self, rows: Tensor, points: int | Tensor, passes: tuple[int, int]) -> None:
        if passes not in self._prices:  # kept on the device: to send it there takes longer than to add it up
            self._prices[passes] = self._counts.new_tensor((0, *passes, 1))
        price = self._prices[passes] * (points[:, None] if isinstance(points, Tensor) else points)
        self._counts.index_add_(0, rows, price.expand(len(rows), -1))
