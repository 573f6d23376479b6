"""Random search: proposals are tried in turn, each as a change of the best point so far.

Few proposals are kept. So several of a row are computed in one call of the model, and those behind one that is kept are
computed again from the new point. Points, margins and queries are those of one proposal at a time.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

import torch
from torch import Tensor

from robustassay.target import ScoreAccess
from robustassay.threat import where_rows

IN_VAIN: Final = 0.25
"""Expected number of kept proposals among those that are computed together; about half as many are computed in vain."""

Propose = Callable[[ScoreAccess, Sequence[Tensor], Tensor], Tensor]
"""From planned numbers `[rows, k, ...]` and the best points `[rows, ...]` to proposals `[rows, k, ...]`."""


@final
class RandomSearch:
    """The best point of each row, `x`, and its margin, `lowest`."""

    def __init__(self, view: ScoreAccess, start: Tensor) -> None:
        self._view = view
        self._kept_part = 1.0
        self.x, self.lowest = view.drop_finished(start, view.goal.margin(view.scores(start)))

    def try_in_turn(self, propose: Propose, plan: Sequence[Tensor], turns: range) -> list[Tensor]:
        """Try the planned proposals `[rows, turn, ...]` of these turns; return the plan of the rows that are left.

        A row goes on behind the first proposal that it keeps, so rows are at different turns.
        """
        turn = torch.full_like(self.lowest, turns.start, dtype=torch.int64)
        counts = turn.new_zeros(2)
        while len(rows := (turn < turns.stop).nonzero().squeeze(1)):
            part = self._view if len(rows) == len(turn) else self._view.subset(turn < turns.stop)
            ahead = turn[rows, None] + torch.arange(self._proposals_per_call(part, len(turns)), device=turn.device)
            planned = [values[rows[:, None], ahead.clamp(max=turns.stop - 1)] for values in plan]
            kept, tried = self._try(part, rows, propose(part, planned, self.x[rows]), ahead >= turns.stop - 1)
            turn = turn.index_add(0, rows, tried)
            counts += torch.stack((kept, tried.sum()))
            self.x, self.lowest, turn, *plan = self._view.drop_rows(self.x, self.lowest, turn, *plan)
        kept_in_all, tried_in_all = counts.tolist()
        self._kept_part = kept_in_all / max(tried_in_all, 1)
        return [*plan]

    def _proposals_per_call(self, part: ScoreAccess, most: int) -> int:
        """Return how many proposals of a row to compute at once: the more, the more seldom one was kept of late."""
        return max(1, min(part.points_per_call, most, int(IN_VAIN / max(self._kept_part, IN_VAIN / most))))

    def _try(self, part: ScoreAccess, rows: Tensor, points: Tensor, is_last: Tensor) -> tuple[Tensor, Tensor]:
        """Ask about points `[rows, k, ...]` up to the first that is better, or last.

        Return how many were kept in all, and how many of each row were tried.
        """
        lowest = self.lowest[rows]

        def better(logits: Tensor) -> Tensor:
            return part.goal.margin(logits) < lowest[:, None]

        logits, asked = part.scores_in_turn(points, lambda logits: better(logits) | is_last)
        is_kept = asked & better(logits)
        any_kept, row, at = is_kept.any(1), torch.arange(len(rows), device=rows.device), is_kept.int().argmax(1)
        margin = part.goal.margin(logits)[row, at]
        self.x = self.x.index_copy(0, rows, where_rows(any_kept, points[row, at], self.x[rows]))
        self.lowest = self.lowest.index_copy(0, rows, torch.where(any_kept, margin, lowest))
        return any_kept.sum(), asked.sum(1)
