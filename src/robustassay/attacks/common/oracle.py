"""The decisions of a model, within each row's budget of queries."""

from typing import final

import torch
from torch import Tensor

from robustassay.target import DecisionAccess


@final
class Oracle:
    """Returns whether points reach the goal, and keeps every row within its budget of queries.

    The budget is what the evaluation leaves, or the attack's own `queries` where there is no limit. A row without
    budget leaves at the next `drop_finished`. Points beyond the budget are not sent; they count as failures.
    """

    def __init__(self, view: DecisionAccess, at: Tensor, budget: "_Budget") -> None:
        self.view = view
        self._at = at
        self._budget = budget  # shared with the oracles of subsets, so that their queries count here too

    @classmethod
    def of(cls, view: DecisionAccess, queries: int) -> "Oracle":
        """Give every row its budget."""
        labels, left = view.goal.labels, view.queries_left()
        budget = torch.full_like(labels, queries) if left is None else left.clone()
        least = int(budget.min()) if len(budget) else 0
        return cls(view, torch.arange(len(labels), device=labels.device), _Budget(budget, least))

    @property
    def left(self) -> Tensor:
        """The queries that each row may still make."""
        return self._budget.of(self._at)

    def reaches(self, x: Tensor) -> Tensor:
        """Clip points to the box, one per row or several, and return which of them reach the goal."""
        points = x.clamp(0, 1)
        points = points if (many := x.dim() > self.view.ball.centre.dim()) else points[:, None]
        if self._budget.least >= points.shape[1]:
            answers = self.view.goal.met(self.view.decisions(points))
            self._budget.spend(self._at, points.shape[1])
            return answers if many else answers[:, 0]
        counts = self.left.clamp(max=points.shape[1])
        answers = torch.zeros(points.shape[:2], dtype=torch.bool, device=x.device)
        for count in set(counts.tolist()):
            rows = counts == count  # budgets differ only in the last call of a row
            if bool(rows.all()) and count == points.shape[1]:
                answers = self.view.goal.met(self.view.decisions(points))
            elif count:
                some = self.view.subset(rows)
                answers[rows, :count] = some.goal.met(some.decisions(points[rows, :count]))
        self._budget.spend_each(self._at, counts, points.shape[1])
        return answers if many else answers[:, 0]

    def drop_finished(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """End an iteration as the view does, and drop the rows without budget too."""
        if not self._budget.least:
            self.view.mark_finished(self.left == 0)
        *kept, self._at = self.view.drop_finished(*tensors, self._at)
        return tuple(kept)

    def subset(self, mask: Tensor) -> "Oracle":
        """Return the oracle of some rows, for an inner loop without the others."""
        return Oracle(self.view.subset(mask), self._at[mask], self._budget)


@final
class _Budget:
    """The queries that each row may still make. What the same rows spend is subtracted when it is next read."""

    def __init__(self, left: Tensor, least: int) -> None:
        self._left, self._spent = left, 0
        self._by = torch.zeros(0, dtype=torch.int64, device=left.device)  # the rows that have spent it
        self.least = least
        """A number that no budget is below, known without a copy from the device."""

    def of(self, rows: Tensor) -> Tensor:
        """Return the budgets of some rows."""
        self._settle()
        return self._left[rows]

    def spend(self, rows: Tensor, queries: int) -> None:
        """Subtract as many from each of these rows."""
        if rows is not self._by:
            self._settle()
            self._by = rows
        self._spent += queries
        self.least -= queries

    def spend_each(self, rows: Tensor, queries: Tensor, most: int) -> None:
        """Subtract a number of its own from each of these rows, at most `most`."""
        self._settle()
        self._left[rows] -= queries
        self.least = max(0, self.least - most)

    def _settle(self) -> None:
        if self._spent:
            self._left[self._by] -= self._spent
            self._spent = 0
