"""What an attacker may see of a model. Knowledge is a type: a DecisionAccess has no scores, a ScoreAccess no gradient.

A box is also the attack's view of the rows still in flight: their balls, goals and random streams. It
shrinks as rows finish, together with whatever tensors the attack passes to `drop_finished`. A query holds one point a
row, `[rows, *image]`, or many, `[rows, q, *image]`; the answer has the same leading shape. A box may hold copies of
its rows, side by side, for an attack that tries several things on each at once; they finish together.
"""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from robustassay.rng import Streams
from robustassay.target.ledger import Ledger
from robustassay.target.start_images import StartImages
from robustassay.target.target_model import TargetModel
from robustassay.threat import Ball, Goal, labels_of

OnStep = Callable[[Ledger], None]
"""Called once an iteration: shows progress, and raises where the user asked to stop."""


Ask = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From points and the row each belongs to, to an answer a point and its logits."""


class NoRowsLeft(Exception):
    """Every row is done: a signal to the engine, which ends the attack here."""


class DecisionAccess:
    """Shows labels only."""

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
        self._pulse = on_step
        self._start_images = start_images or StartImages.of(ledger.ball.centre, ledger.goal.labels)
        self._inner = inner
        self._copies = 1
        self._iteration = 0
        self._show(rows, rng)

    def _show(self, rows: Tensor, rng: Streams) -> None:
        self._rows, self._streams = rows, rng
        shown = self._copied(rows)
        self._each = torch.arange(len(shown), device=rows.device)
        self.rng: Streams = rng if self._copies == 1 else rng.copied(self._copies)
        self.ball: Ball = self._ledger.ball.among(shown)
        self.goal: Goal = self._ledger.goal.among(shown)

    def _copied(self, values: Tensor) -> Tensor:
        """Repeat what belongs to a row for each of its copies."""
        return values if self._copies == 1 else values.repeat_interleave(self._copies, 0)

    def decisions(self, x: Tensor) -> Tensor:
        """Return the label of each point."""
        return labels_of(self._ask(x, self._logits_only, self._look)[1])

    def start_images(self) -> Tensor:
        """Draw an image a row, from the data, whose own label would satisfy the goal; noise where there is none.

        No query is made: what the model says of it is for the attack to ask.
        """
        return self._start_images.draw(self.goal, self.rng, self.ball.centre)

    def queries_left(self) -> Tensor | None:
        """Count the queries each row may still make; None where there is no limit."""
        return None if self._ledger.query_budget is None else self._copied(self._ledger.queries_left[self._rows])

    def claimed_distance(self) -> Tensor:
        """Return how close each row's best claim is; infinite for a row without one."""
        return self._copied(self._ledger.distance[self._rows])

    def start_iterations(self) -> None:
        """Begin iteration 1: for a loop that asks about the result of a step before it calls `drop_finished`."""
        self._ledger.end_iteration(self._rows)

    def drop_finished(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """End an iteration: let finished rows go and return the tensors without them."""
        self._iteration += 1
        if self._looks_away():
            self._ledger.end_iteration(self._rows)
            return tensors
        done = self._ledger.done[self._rows]
        self._ledger.end_iteration(self._rows)
        self._pulse(self._ledger.main)
        alive = (~done).nonzero().squeeze(1)
        self._target.count_iteration()
        if len(alive) == len(self._rows):
            return tensors
        if not self._inner and not len(alive):
            raise NoRowsLeft
        self._show(self._rows[alive], self._streams.among(alive))
        kept = alive if self._copies == 1 else self._places(alive)
        return tuple(tensor[kept] for tensor in tensors)

    def _looks_away(self) -> bool:
        """Whether to go on without a look at who has finished."""
        return False

    def _places(self, rows: Tensor) -> Tensor:
        """Say where all copies of these rows stand."""
        return (rows[:, None] * self._copies + torch.arange(self._copies, device=rows.device)).flatten()

    def subset(self, mask: Tensor) -> Self:
        """Return a box of some of the rows, for an inner loop that lets the others rest; it may run empty."""
        return self._of(mask, inner=True)

    def for_stage(self, mask: Tensor) -> Self:
        """Return a box of some of the rows, for a whole attack: `NoRowsLeft` is raised when all of them are done."""
        return self._of(mask, inner=False)

    def copied(self, copies: int) -> Self:
        """Return a box of the same rows, each as often as this side by side, for a whole attack.

        What was known of a row is known of each copy with `repeat_interleave`.
        """
        box = self._of(torch.ones_like(self._rows, dtype=torch.bool), inner=False)
        box._copies = copies
        box._show(box._rows, box._streams)
        return box

    def _of(self, mask: Tensor, inner: bool) -> Self:
        assert self._copies == 1, "parts of copied rows would finish apart"
        rows = self._rows[mask]
        return type(self)(
            self._target, self._ledger, self.rng.among(mask), rows, self._pulse, self._start_images, inner
        )

    def with_radius(self, eps: Tensor) -> Self:
        """Return a box of the same rows with other radii, for a whole attack on that budget.

        Rows leave it with their first success there; what it spends and finds is booked for this box too.
        """
        assert self._copies == 1, "radii belong to rows, not to their copies"
        books = self._ledger.with_radii(self._rows, eps)
        rows = torch.arange(len(self._rows), device=self._rows.device)
        return type(self)(self._target, books, self.rng, rows, self._pulse, self._start_images)

    def closest_claim(self) -> Tensor:
        """Return the closest point that each row has claimed; the clean image for a row without one."""
        return self._copied(self._ledger.x_adv[self._rows])

    def track(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Remember one value a row; calling what is returned gives those of the rows still in flight."""
        then = self._rows

        def now() -> Tensor:
            left = torch.searchsorted(then, self._rows)  # rows only ever leave, so both are sorted
            return tensor[left if self._copies == 1 else self._places(left)]

        return now

    def begin_stage(self, name: str) -> None:
        """Say which part of the attack speaks from here on; claims are booked under its name."""
        self._ledger.begin_stage(name)

    def mark_finished(self, finished: Tensor) -> None:
        """Let rows go at the next `drop_finished` because the attack has no more to try on them."""
        self._ledger.marked_finished[self._rows[finished.view(-1, self._copies).all(1)]] = True

    def require_margin(self, margin: float) -> None:
        """Claim, from here on, only points that reach the goal by this margin or more."""
        self._ledger.require_margin(self._rows, margin)

    @property
    def _look(self) -> tuple[int, int]:
        """What one look at a point costs, in forward and backward passes."""
        return 1, 0

    def _ask(self, x: Tensor, ask: Ask, passes: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Send the points each row can still pay for, and book them; points past the budget get zeros."""
        x = self._target.quantise(x.detach(), None if self._ledger.seeks_minimum else self.ball)
        one_a_row = x.dim() == self.ball.centre.dim()
        points = x[:, None] if one_a_row else x
        shown, q = points.shape[:2]
        owner = self._each if q == 1 else self._each.repeat_interleave(q)
        flat = points.flatten(0, 1)
        by_row = flat.view(len(self._rows), self._copies * q, *flat.shape[1:])
        sent = None if self._ledger.surely_affords(by_row.shape[1]) else self._affordable(*by_row.shape[:2])
        if sent is None or sent.all():
            answer, logits = ask(flat, owner)
        else:
            paid = sent.flatten()
            answer, logits = _spread(paid, *ask(flat[paid], owner[paid]))
        self._ledger.record(self._rows, by_row, logits.view(*by_row.shape[:2], self._target.classes), sent, passes)
        answer = answer.reshape(x.shape[: 1 if one_a_row else 2] + answer.shape[1:])
        return answer, logits if one_a_row else logits.view(shown, q, self._target.classes)

    def _affordable(self, rows: int, q: int) -> Tensor:
        return (
            torch.arange(q, device=self._rows.device).expand(rows, q) < self._ledger.queries_left[self._rows][:, None]
        )

    def _logits_only(self, x: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._target.logits(x)
        return logits, logits


class ScoreAccess(DecisionAccess):
    """Shows the score of every class as well."""

    def scores(self, x: Tensor) -> Tensor:
        """Return the logits of each point."""
        return self._ask(x, self._logits_only, self._look)[1]


def _spread(paid: Tensor, *answers: Tensor) -> tuple[Tensor, ...]:
    """Put the answers where their points were and zeros elsewhere."""
    full = tuple(answer.new_zeros(len(paid), *answer.shape[1:]) for answer in answers)
    for whole, answer in zip(full, answers, strict=True):
        whole[paid] = answer
    return full
