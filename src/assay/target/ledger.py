"""What every query cost and the best it found, row by row, kept where no attack can touch it."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from assay.target.rules import Best, Cost
from assay.threat import Ball, Goal, per_row

NEVER: Final = -1
"""Stands for an iteration or query count that did not happen."""


class Ledger:
    """The books of one wave.

    A claim is a point inside the box that reached the goal: the first one inside the ball for an attack on a
    fixed budget, the closest one for an attack that seeks the minimum. Claims are verified elsewhere. Where margins
    are seen only up to a `doubt`, a claim must clear it, and the nearest miss of each row is kept for a closer look.

    Booking never asks a GPU for a value, which would make it wait: rows are chosen by masks, not by looking.
    """

    def __init__(
        self,
        ball: Ball,
        goal: Goal,
        seeks_minimum: bool,
        query_budget: int | None,
        rules: Mapping[str, Cost] | None = None,
        doubt: float = 0.0,
    ) -> None:
        rows, device = len(ball.centre), ball.centre.device
        self.ball, self.goal = ball, goal
        self.seeks_minimum = seeks_minimum
        self.query_budget = query_budget
        self.x_adv = ball.centre.clone()
        self.distance = torch.full((rows,), torch.inf, dtype=torch.float64, device=device)
        self.lowest_margin = torch.full((rows,), torch.inf, device=device)
        self.clean_margin = self.lowest_margin
        self.claim_margin = torch.zeros(rows, device=device)
        self.required_margin = torch.full((rows,), -doubt if doubt else torch.inf, device=device)
        self.nearest_miss = ball.centre.clone() if doubt else None
        self.noise = torch.zeros(rows, device=device)
        self.iterations, self.forwards, self.backwards, self.queries = (
            torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(4)
        )
        self.claimed_at_iteration = torch.full((rows,), NEVER, dtype=torch.int64, device=device)
        self.claimed_at_query = self.claimed_at_iteration.clone()
        self.dismissed = torch.zeros(rows, dtype=torch.bool, device=device)
        self._improvements: list[tuple[Tensor, ...]] = []
        self._stages: list[str | None] = [None]
        self._stage_of_claim = torch.zeros_like(self.iterations)
        self._most_spent = 0
        self.refused: dict[int, str] = {}
        self.others = {name: Best(cost, ball.centre) for name, cost in (rules or {}).items()}
        self._endless = False
        self._main: Ledger | None = None
        self._main_rows = torch.arange(rows, device=device)

    @classmethod
    def endless(cls, ball: Ball, goal: Goal) -> "Ledger":
        """Open books in which no row is ever done, for an attack that is to run all its steps."""
        books = cls(ball, goal, seeks_minimum=False, query_budget=None)
        books._endless = True
        return books

    def beside(self, rows: Tensor, eps: Tensor) -> "Ledger":
        """Open books for some rows on a fixed budget of other radii; all that is booked there is booked here too."""
        books = Ledger(
            Ball(self.ball.norm, self.ball.centre[rows], eps), self.goal.among(rows), False, self.query_budget
        )
        books.lowest_margin, books.clean_margin = self.clean_margin[rows], self.clean_margin[rows]
        books.required_margin, books.noise = self.required_margin[rows], self.noise[rows]
        books._main, books._main_rows = self, rows
        return books

    def enter(self, stage: str) -> None:
        """Book claims under this name from here on."""
        self._stages.append(stage)

    @property
    def claimed_by(self) -> list[str | None]:
        """The stage that made each row's claim, where it has one and stages have names."""
        return [self._stages[at] for at in self._stage_of_claim.tolist()]

    @property
    def main(self) -> "Ledger":
        """The books of the whole wave."""
        return self._main or self

    def end_iteration(self, rows: Tensor) -> None:
        """Count one more iteration of these rows."""
        self.iterations[rows] += 1
        if self._main is not None:
            self._main.end_iteration(self._main_rows[rows])

    @property
    def claimed(self) -> Tensor:
        """Say which rows have a point to show."""
        return self.distance < torch.inf

    @property
    def done(self) -> Tensor:
        """Say which rows have nothing left to do: goal reached (at no distance, if that is sought), or budget spent."""
        if self._endless:
            return torch.zeros_like(self.dismissed)
        finished = self.dismissed | (self.distance == 0 if self.seeks_minimum else self.claimed)
        return finished if self.query_budget is None else finished | (self.left == 0)

    @property
    def left(self) -> Tensor:
        """Count the queries each row may still make."""
        assert self.query_budget is not None
        return self.query_budget - self.main.queries[self._main_rows]

    def can_surely_pay(self, points: int) -> bool:
        """Say whether every row can pay for so many points, as far as is known without asking the device."""
        return self.query_budget is None or self.main._most_spent + points <= self.query_budget

    def look_at_clean(self, logits: Tensor) -> None:
        """Claim the clean images that reach the goal as they are; this look is the evaluator's and is free."""
        reached = self.goal.reached(logits)
        self.lowest_margin = self.clean_margin = self.goal.margin(logits)
        self.distance[reached] = 0.0
        self.claimed_at_iteration[reached] = self.claimed_at_query[reached] = 0
        for best in self.others.values():
            best.offer(torch.arange(len(reached), device=reached.device), self.ball.centre[:, None], reached[:, None])

    def expect_noise(self, noise: Tensor) -> None:
        """Of a model that draws random numbers, claim only what clears the error of a margin as it is seen."""
        self.noise = noise
        self.required_margin = torch.where(noise > 0, -noise, self.required_margin)

    def reopen(self, rows: Tensor, verified_margin: Tensor, problems: list[str]) -> None:
        """Take back claims that did not verify, but not forget them; the next one must clear the doubt there was."""
        for row, problem in zip(rows.tolist(), problems, strict=True):
            self.refused[row] = problem
        self._stage_of_claim[rows] = 0
        doubt = (verified_margin - self.claim_margin[rows]).abs() + self.claim_margin[rows].abs()
        clearer = torch.where(self.noise[rows] > 0, self.required_margin[rows] - self.noise[rows], -2 * doubt)
        self.required_margin[rows] = torch.minimum(self.required_margin[rows], clearer)
        self.distance[rows] = torch.inf
        self.x_adv[rows] = self.ball.centre[rows]
        for best in self.others.values():
            best.forget(rows)
        self._improvements = [
            tuple(values[kept] for values in entry)
            for entry in self._improvements
            if (kept := ~torch.isin(entry[0], rows)).any()
        ]

    def look_again(self, rows: Tensor, logits: Tensor) -> None:
        """Claim the nearest misses that reach the goal when seen without doubt, as all will be from here on.

        This look, like that at the clean images, is the evaluator's and is free.
        """
        assert self.nearest_miss is not None
        self.required_margin[rows] = torch.inf
        x, ball, goal = self.nearest_miss[rows][:, None], self.ball.among(rows), self.goal.among(rows)
        reached = goal.reached(logits)
        self._claim(rows, reached, torch.zeros_like(rows), x, ball.distance(x), goal.margin(logits)[:, None])
        self.claimed_at_query[rows] = torch.minimum(self.claimed_at_query[rows], self.queries[rows])

    def demand(self, rows: Tensor, margin: float) -> None:
        """From now on, claim only points that reach the goal by this margin or more."""
        self.required_margin[rows] = self.required_margin[rows].clamp(max=-margin)

    def improvements(self) -> list[list[dict[str, float]]]:
        """Return, row by row, every claim that was better than the one before: when it came, and its distance."""
        found: list[list[dict[str, float]]] = [[] for _ in range(len(self.distance))]
        entries = self._improvements if self.seeks_minimum else [self._only_improvement()]
        if entries:
            columns = (torch.cat(column).tolist() for column in zip(*entries, strict=True))
            for row, iteration, query, distance in zip(*columns, strict=True):
                found[row].append({"iteration": iteration, "query": query, "distance": distance})
        return found

    def _only_improvement(self) -> tuple[Tensor, ...]:
        """Of an attack on a fixed budget, the one claim a row may have; clean images that fell are none of its."""
        rows = (self.claimed & (self.claimed_at_query > 0)).nonzero().squeeze(1)
        return rows, self.claimed_at_iteration[rows], self.claimed_at_query[rows], self.distance[rows]

    def record(self, rows: Tensor, x: Tensor, logits: Tensor, sent: Tensor, passes: tuple[int, int]) -> None:
        """Book the points `[rows, q, ...]` of these rows, in order, and claim the best of them.

        `sent` says which points the budget paid for; the others were never shown to the model. `passes` are the
        forward and the backward passes that each point cost.
        """
        ball, goal = self.ball.among(rows), self.goal.among(rows)
        distance, in_box = ball.distance(x), sent & ball.in_box(x)
        feasible = in_box & ball.near(distance)
        seen = goal.margin(logits)
        self._note_lowest(rows, x, torch.where(feasible, seen, torch.inf))

        reached = goal.reached(logits) & (seen <= self.required_margin[rows][:, None])
        if self.seeks_minimum:
            least, at = torch.where(reached & in_box, distance, torch.inf).min(1)
            better = least < self.distance[rows]
        else:
            hit = reached & feasible
            at = hit.int().argmax(1)
            better = hit.any(1) & ~self.claimed[rows]
        self._claim(rows, better, at, x, distance, seen)
        for best in self.others.values():
            best.offer(rows, x, reached & in_box)

        points = sent.sum(1)
        self.queries[rows] += points
        self.forwards[rows] += points * passes[0]
        self.backwards[rows] += points * passes[1]
        self._most_spent += x.shape[1]
        if self._main is not None:
            self._main.record(self._main_rows[rows], x, logits, sent, passes)

    def _note_lowest(self, rows: Tensor, x: Tensor, margin: Tensor) -> None:
        """Remember the lowest margin of each row so far, and where it was seen if a closer look may come."""
        before = self.lowest_margin[rows]
        lowest, at = margin.min(1)
        self.lowest_margin = self.lowest_margin.index_copy(0, rows, torch.minimum(before, lowest))
        if self.nearest_miss is not None:
            nearer = per_row(lowest < before, x[:, 0])
            self.nearest_miss[rows] = torch.where(nearer, _picked(x, at), self.nearest_miss[rows])

    def _claim(self, rows: Tensor, better: Tensor, at: Tensor, x: Tensor, distance: Tensor, seen: Tensor) -> None:
        """Put the points at `at` in place of the claims that they are better than."""
        self.x_adv[rows] = torch.where(per_row(better, x[:, 0]), _picked(x, at), self.x_adv[rows])
        for column, found in (
            (self.distance, _picked(distance, at)),
            (self.claim_margin, _picked(seen, at)),
            (self.claimed_at_iteration, self.iterations[rows]),
            (self.claimed_at_query, self.queries[rows] + at + 1),
            (self._stage_of_claim, torch.full_like(at, len(self._stages) - 1)),
        ):
            column[rows] = torch.where(better, found, column[rows])
        if self.seeks_minimum and better.any():
            winners = rows[better]
            self._improvements.append(
                (winners, self.claimed_at_iteration[winners], self.claimed_at_query[winners], self.distance[winners])
            )


def _picked(values: Tensor, at: Tensor) -> Tensor:
    """Choose one of the points of each row."""
    return values[:, 0] if values.shape[1] == 1 else values[torch.arange(len(at), device=at.device), at]
