"""Carlini and Wagner's L2 attack."""

from dataclasses import dataclass
from typing import Final, Self, final

import torch
from torch import Tensor

from assay.attacks.attack import Attack
from assay.attacks.descents import bisected, window_of
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L2, Goal, per_row

INSIDE: Final = 1 - 1e-6
"""Pulls pixels off the walls: at 0 and 1 themselves the tanh is flat and they could never move."""

STILL: Final = 0.3
"""A row stands still if a window changes its closest success, or its loss as long as it has none, by less than this
part over the number of steps: who pays for more of them wants it finer."""

WANDERS: Final = 0.5
"""Adam's mean over its root mean square: above, a row walks one way, as pixels at walls do long before it shows."""

FINER: Final = 0.5
"""The rate of a descent that begins at a success, as a part of the rate of the one before."""


@final
@register("attack", "cw")
@dataclass(frozen=True)
class CW(Attack[WhiteBox]):
    """Least |x - x0|^2 + c * hinge, by Adam through a tanh (Carlini & Wagner 2017, arXiv:1608.04644).

    `kappa` is the margin by which a point must win to count; an image that is wrong from the start counts as it is.
    Unlike the authors' code, a descent begins where the one before found its closest success, with half its rate, or
    stopped without one, and ends once it stands still: about as near for a third of the gradients. Rows descend side by
    side, each with a c of its own, and none waits for another. `abort_early=False` goes to the last step.
    """

    access = WhiteBox
    norms = (L2,)
    seeks_minimum = True

    search_steps: int = 9
    steps: int = 1000
    rate: float = 0.01
    initial_c: float = 1e-3
    kappa: float = 0.0
    abort_early: bool = True

    def __call__(self, view: WhiteBox, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent still finds a way."""
        view.demand(self.kappa)
        rows, window = _Rows.at(x0, self.initial_c, self.rate), window_of(self.steps)
        for tick in range(1, self.search_steps * self.steps + 1):
            self._step(view, rows)
            if tick % window == 0:
                rows.end(self._over(rows))
                view.dismiss(rows.descents == self.search_steps)
            rows = _Rows(*view.keep(*rows.tensors))
        return view.ball.centre

    def _step(self, view: WhiteBox, rows: "_Rows") -> None:
        """Look at where the rows are, and go on."""
        centre, c = view.ball.centre, per_row(rows.c, rows.w)
        tanh = rows.w.tanh()
        x = (centre + (tanh - rows.start) / 2).float().clamp(0, 1)  # the clean image itself at first
        climb, logits = view.gradient(x, self._minus_hinge)
        distance = view.ball.distance(x)
        won = view.goal.reached(logits) & (view.goal.margin(logits) <= -self.kappa)
        rows.look(won, distance, distance.square() - rows.c * self._minus_hinge(logits, view.goal))
        rows.descend((2 * (x - centre) - c * climb) * ((1 - tanh.square()) / 2).float())

    def _over(self, rows: "_Rows") -> Tensor:
        """Say whose descent is at its end: at its last step, or standing still."""
        over = rows.steps == self.steps
        return over | ~rows.moves(1 - STILL / self.steps) if self.abort_early else over

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        return -(goal.margin(logits) + self.kappa).clamp(min=0)


@final
@dataclass
class _Rows:
    """Rows on their way down, each with a c, a rate and a clock of its own."""

    w: Tensor
    start: Tensor  # tanh of the clean image
    best: Tensor  # where the closest success of this descent was
    mean: Tensor  # Adam's
    square: Tensor
    c: Tensor
    low: Tensor
    high: Tensor
    rate: Tensor
    descents: Tensor  # that have ended
    steps: Tensor  # of this descent
    nearest: Tensor  # success of this descent
    nearest_before: Tensor  # at the last look
    lowest: Tensor  # loss of this descent
    lowest_before: Tensor
    holds: Tensor  # won since the last look: at the end of a descent, its c is large enough
    lost: Tensor  # never won

    @classmethod
    def at(cls, x0: Tensor, c: float, rate: float) -> Self:
        """Stand at the clean images."""
        w, still = _unbounded(x0), torch.zeros_like(x0)
        first = torch.full((len(x0),), c, device=x0.device)
        zero, endless, rates = torch.zeros_like(first), torch.full_like(first, torch.inf), torch.full_like(first, rate)
        never, clock, no = endless.double(), zero.long(), zero.bool()
        return cls(w, w.tanh(), w, still, still, first, zero, endless, rates, clock, clock, *(never,) * 4, no, ~no)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, in the order of the fields."""
        return tuple(vars(self).values())

    def look(self, won: Tensor, distance: Tensor, loss: Tensor) -> None:
        """Remember what was seen where the rows are."""
        closer = won & (distance < self.nearest)
        self.best = torch.where(per_row(closer, self.w), self.w, self.best)
        self.nearest = torch.where(closer, distance, self.nearest)
        self.lowest = torch.minimum(self.lowest, loss)
        self.holds, self.lost = self.holds | won, self.lost & ~won

    def descend(self, slope: Tensor) -> None:
        """Take one step of Adam."""
        self.steps = self.steps + 1
        self.mean, self.square = 0.9 * self.mean + 0.1 * slope, 0.999 * self.square + 0.001 * slope.square()
        self.w = self.w - per_row(self.rate, self.w) * self._direction()

    def _direction(self) -> Tensor:
        mean, square = (
            total / per_row((1 - decay ** self.steps.double()).to(total.dtype), total)
            for total, decay in ((self.mean, 0.9), (self.square, 0.999))
        )
        return mean / (square.sqrt() + 1e-8)

    def moves(self, falling: float) -> Tensor:
        """Say which rows have made progress since the last look, or are about to."""
        wanders = self._direction().flatten(1).abs().mean(1) > WANDERS
        falls = wanders | (self.lowest < falling * self.lowest_before)
        return torch.where(self.lost, falls, self.nearest < falling * self.nearest_before)

    def end(self, over: Tensor) -> None:
        """End these descents, and begin the next of each row with another c; the others go on."""
        finer = over & ~self.lost
        self.c, self.low, self.high = bisected(self.c, self.low, self.high, over, self.holds)
        self.rate = torch.where(finer, FINER * self.rate, self.rate)
        self.w = torch.where(per_row(finer, self.w), self.best, self.w)
        self.mean, self.square = (torch.where(per_row(over, m), 0, m) for m in (self.mean, self.square))
        self.nearest, self.lowest = (torch.where(over, torch.inf, least) for least in (self.nearest, self.lowest))
        self.nearest_before, self.lowest_before = self.nearest, self.lowest
        self.descents, self.steps = self.descents + over, torch.where(over, 0, self.steps)
        self.holds = torch.zeros_like(self.holds)


def _unbounded(x: Tensor) -> Tensor:
    """Return what the tanh makes of an image."""
    return ((2 * x.double() - 1) * INSIDE).atanh()
