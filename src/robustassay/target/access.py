"""What an attack may ask. Access is a type: a DecisionAccess has no scores, a ScoreAccess has no gradient.

An access also holds the rows that are not finished: their balls, goals and random streams. Finished rows are dropped,
together with their entries of the tensors that the attack passes to `drop_finished`. A query holds one point per row,
`[rows, *image]`, or several, `[rows, q, *image]`; the answer has the same leading shape. An access may hold several
copies of each row, side by side, for an attack that tries several starts or targets at once; they finish together.
"""

from collections.abc import Callable
from typing import Final, Self

import torch
from torch import Tensor

from robustassay.rng import Streams
from robustassay.target.ledger import Ledger
from robustassay.target.start_images import StartImages
from robustassay.target.target_model import TargetModel
from robustassay.threat import Ball, Goal, labels_of

OnStep = Callable[[Ledger], None]
"""Called once per iteration: shows progress, and raises after a graceful interrupt."""

CALLS_AT_ONCE: Final = 2
"""Calls of the model that points which are computed ahead may fill."""

IDLE_ITERATIONS: Final = 32
"""Iterations between two checks for finished rows where there can be none: they show progress and end a run, too."""

Ask = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From points and the row of each, to one answer and the logits per point."""


class NoRowsLeft(Exception):
    """Every row is finished: the evaluation catches this and ends the attack."""


class DecisionAccess:
    """Gives labels only."""

    def __init__(
        self,
        target: TargetModel,
        ledger: Ledger,
        rng: Streams,
        rows: Tensor,
        on_step: OnStep,
        start_images: StartImages | None = None,
        inner: bool = False,
    ) -> None:
        self._target = target
        self._ledger = ledger
        self._on_step = on_step
        self._start_images = start_images or StartImages.of(ledger.ball.centre, ledger.goal.labels)
        self._inner = inner
        self._copies = 1
        self._iteration = 0
        self._marks_seen = -1
        self._set_rows(rows, rng)

    def _set_rows(self, rows: Tensor, rng: Streams) -> None:
        self._rows, self._streams = rows, rng
        copied = self._copied(rows)
        self._indices = torch.arange(len(copied), device=rows.device)
        self.rng: Streams = rng if self._copies == 1 else rng.copied(self._copies)
        self.ball: Ball = self._ledger.ball.among(copied)
        self.goal: Goal = self._ledger.goal.among(copied)

    def _copied(self, values: Tensor) -> Tensor:
        """Repeat the values of each row once per copy."""
        return values if self._copies == 1 else values.repeat_interleave(self._copies, 0)

    @property
    def classes(self) -> int:
        """The number of classes of the model."""
        return self._target.classes

    def decisions(self, x: Tensor) -> Tensor:
        """Return the label of each point."""
        return labels_of(self._ask(x, self._logits_only, self._passes_per_query)[1])

    def start_images(self) -> Tensor:
        """Draw one image per row, from the data, whose true label reaches the goal; noise where there is none.

        This makes no query: the attack must ask whether the model agrees.
        """
        return self._start_images.draw(self.goal, self.rng, self.ball.centre)

    @property
    def query_budget(self) -> int | None:
        """The queries that every row may make in all; None where there is no limit."""
        return self._ledger.query_budget

    def queries_left(self) -> Tensor | None:
        """Count the queries each row may still make; None where there is no limit."""
        return None if self._ledger.query_budget is None else self._copied(self._ledger.queries_left[self._rows])

    def claimed_distance(self) -> Tensor:
        """Return the distance of each row's best claim; infinite for a row without one."""
        return self._copied(self._ledger.distance[self._rows])

    def start_iterations(self) -> None:
        """Count the start point as an iteration: for a loop that queries the start point before its first step."""
        self._ledger.end_iteration(self._rows)

    def drop_finished(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """End an iteration: drop finished rows and return the tensors without them."""
        self._iteration += 1
        self._ledger.end_iteration(self._rows)
        return tensors if self._skips_check() else self.drop_rows(*tensors)

    def drop_rows(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Drop finished rows and return the tensors without them; iterations are counted elsewhere."""
        self._marks_seen = self._ledger.marks
        self._on_step(self._ledger.main)
        kept = (~self._ledger.done[self._rows]).nonzero().squeeze(1)
        self._target.count_iteration()
        if len(kept) == len(self._rows):
            return tensors
        if not self._inner and not len(kept):
            raise NoRowsLeft
        self._set_rows(self._rows[kept], self._streams.among(kept))
        entries = kept if self._copies == 1 else self._entries_of(kept)
        return tuple(tensor[entries] for tensor in tensors)

    def _skips_check(self) -> bool:
        """Whether to go on without checking which rows are finished, as none can be: each check makes a GPU wait.

        Of a random model the clean image may reach the goal in a later draw, which finishes its row at once.
        """
        ledger, target = self._ledger, self._target
        if ledger.marks != self._marks_seen or ledger.may_finish_rows or target.random or target.is_remote:
            return False
        return self._iteration % IDLE_ITERATIONS != 0

    def _entries_of(self, rows: Tensor) -> Tensor:
        """Return the indices of all copies of these rows."""
        return (rows[:, None] * self._copies + torch.arange(self._copies, device=rows.device)).flatten()

    def subset(self, mask: Tensor) -> Self:
        """Return the access of some rows, for an inner loop that leaves the others out; it may become empty."""
        return self._of(mask, inner=True)

    def for_stage(self, mask: Tensor) -> Self:
        """Return the access of some rows, for a whole attack: `NoRowsLeft` is raised when all of them are finished."""
        return self._of(mask, inner=False)

    def copied(self, copies: int) -> Self:
        """Return the access of the same rows with this many copies of each, for a whole attack.

        `repeat_interleave` turns values per row into values per copy.
        """
        access = self._of(torch.ones_like(self._rows, dtype=torch.bool), inner=False)
        access._copies = copies
        access._set_rows(access._rows, access._streams)
        return access

    def _of(self, mask: Tensor, inner: bool) -> Self:
        assert self._copies == 1, "parts of copied rows would finish apart"
        rows = self._rows[mask]
        return type(self)(
            self._target, self._ledger, self.rng.among(mask), rows, self._on_step, self._start_images, inner
        )

    def with_radius(self, eps: Tensor) -> Self:
        """Return the access of the same rows with other radii, for a whole attack with these.

        Rows finish with their first success there; its queries and claims are recorded for this access too.
        """
        assert self._copies == 1, "radii belong to rows, not to their copies"
        ledger = self._ledger.with_radii(self._rows, eps)
        rows = torch.arange(len(self._rows), device=self._rows.device)
        return type(self)(self._target, ledger, self.rng, rows, self._on_step, self._start_images)

    def closest_claim(self) -> Tensor:
        """Return the closest point that each row has claimed; the clean image for a row without one."""
        return self._copied(self._ledger.x_adv[self._rows])

    def track(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Store one value per row; the function returned gives the values of the rows that are left."""
        rows = self._rows

        def current() -> Tensor:
            left = torch.searchsorted(rows, self._rows)  # rows are only ever dropped, so both are sorted
            return tensor[left if self._copies == 1 else self._entries_of(left)]

        return current

    def begin_stage(self, name: str) -> None:
        """Begin a part of the attack; claims are recorded under its name."""
        self._ledger.begin_stage(name)

    def mark_finished(self, finished: Tensor) -> None:
        """Finish rows on which the attack has nothing more to try; the next `drop_finished` drops them."""
        self._ledger.marks += 1
        marked = self._ledger.marked_finished
        marked[self._rows] = marked[self._rows] | finished.view(-1, self._copies).all(1)

    def require_margin(self, margin: float) -> None:
        """Claim, from now on, only points that reach the goal by this margin or more."""
        self._ledger.require_margin(self._rows, margin)

    @property
    def _passes_per_query(self) -> tuple[int, int]:
        """Forward and backward passes that the logits of one point cost."""
        return 1, 0

    def _ask(self, x: Tensor, ask: Ask, passes: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Send the points within each row's budget, and record them; the answer to other points is zero."""
        x = self._target.quantise(x.detach(), None if self._ledger.seeks_minimum else self.ball)
        one_per_row = x.dim() == self.ball.centre.dim()
        points = x[:, None] if one_per_row else x
        rows, q = points.shape[:2]
        owner = self._indices if q == 1 else self._indices.repeat_interleave(q)
        flat = points.flatten(0, 1)
        by_row = flat.view(len(self._rows), self._copies * q, *flat.shape[1:])
        sent = None if self._ledger.has_budget_for_all(by_row.shape[1]) else self._affordable(*by_row.shape[:2])
        if sent is None or sent.all():
            answer, logits = ask(flat, owner)
        else:
            asked = sent.flatten()
            answer, logits = _scatter(asked, *ask(flat[asked], owner[asked]))
        self._ledger.record(self._rows, by_row, logits.view(*by_row.shape[:2], self._target.classes), sent, passes)
        answer = answer.reshape(x.shape[: 1 if one_per_row else 2] + answer.shape[1:])
        return answer, logits if one_per_row else logits.view(rows, q, self._target.classes)

    def _affordable(self, rows: int, q: int) -> Tensor:
        return (
            torch.arange(q, device=self._rows.device).expand(rows, q) < self._ledger.queries_left[self._rows][:, None]
        )

    def _logits_only(self, x: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._target.logits(x)
        return logits, logits


class ScoreAccess(DecisionAccess):
    """Gives the logits of all classes as well."""

    def scores(self, x: Tensor) -> Tensor:
        """Return the logits of each point."""
        return self._ask(x, self._logits_only, self._passes_per_query)[1]

    @property
    def points_per_call(self) -> int:
        """How many points of each row keep the model busy; one where an answer costs money or draws numbers."""
        if self._target.is_remote or self._target.random:
            return 1
        return max(1, CALLS_AT_ONCE * self._target.images_per_call(self.ball.centre) // len(self._rows))

    def margins_in_turn(self, x: Tensor, allowed: Tensor, lowest: Tensor) -> tuple[Tensor, Tensor]:
        """Ask about the allowed points `[rows, q, ...]` one after the other, until a margin is below the row's lowest.

        Return the margins, and which points were asked about. Each of these is a query and an iteration. The model
        computes the others in the same call, because one full call takes less time than many small ones; they count as
        no query, nothing of them is recorded, and their margins are returned as infinite.
        """
        assert self._copies == 1, "points in turn belong to rows, not to their copies"
        points = self._target.quantise(x.detach(), None if self._ledger.seeks_minimum else self.ball)
        logits = self._logits_only(points.flatten(0, 1), self._indices)[1].view(*points.shape[:2], -1)
        margins = self.goal.margin(logits)
        is_lower = (margins < lowest[:, None]).long()
        asked = allowed & (is_lower.cumsum(1) == is_lower)  # no margin before this one was lower
        if not self._ledger.has_budget_for_all(points.shape[1]):
            asked &= self._affordable(*points.shape[:2])
        self._ledger.record(self._rows, points, logits, asked, self._passes_per_query, in_turn=True)
        self._ledger.end_iteration(self._rows, asked.sum(1))
        return margins.masked_fill(~asked, torch.inf), asked


def _scatter(asked: Tensor, *answers: Tensor) -> tuple[Tensor, ...]:
    """Put the answers at the points that were asked about, and zeros elsewhere."""
    full = tuple(answer.new_zeros(len(asked), *answer.shape[1:]) for answer in answers)
    for whole, answer in zip(full, answers, strict=True):
        whole[asked] = answer
    return full
