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

EXPECTED_KEPT: Final = 0.25
"""Expected number of kept proposals among those of a row that are computed together: the rest behind them is lost."""

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
            kept, tried = self._try(part, rows, propose(part, planned, self.x[rows]), ahead < turns.stop)
            turn = turn.index_add(0, rows, tried)
            counts += torch.stack((kept, tried.sum()))
            self.x, self.lowest, turn, *plan = self._view.drop_rows(self.x, self.lowest, turn, *plan)
        kept_in_all, tried_in_all = counts.tolist()
        self._kept_part = kept_in_all / max(tried_in_all, 1)
        return [*plan]

    def _proposals_per_call(self, part: ScoreAccess, most: int) -> int:
        """Return how many proposals of a row to compute at once: the more, the more seldom one was kept of late."""
        return max(1, min(part.points_per_call, most, int(EXPECTED_KEPT / max(self._kept_part, EXPECTED_KEPT / most))))

    def _try(self, part: ScoreAccess, rows: Tensor, points: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Ask about the allowed points `[rows, k, ...]` up to the first that is better.

        Return how many were kept in all, and how many of each row were tried.
        """
        lowest = self.lowest[rows]
        margins, asked = part.margins_in_turn(points, allowed, lowest)
        margin, at = margins.min(1)
        is_kept, row = margin < lowest, torch.arange(len(rows), device=rows.device)
        self.x = self.x.index_copy(0, rows, where_rows(is_kept, points[row, at], self.x[rows]))
        self.lowest = self.lowest.index_copy(0, rows, torch.where(is_kept, margin, lowest))
        return is_kept.sum(), asked.sum(1)
