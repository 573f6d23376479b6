"""Carlini and Wagner's L2 attack."""

from dataclasses import dataclass
from typing import Final, Self, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.attacks.common.penalty_search import FINER, Rows, bisected, first_c, growth_of, window_of
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L2, Goal, per_row, where_rows

INSIDE: Final = 1 - 1e-6
"""Pulls pixels off the walls: at 0 and 1 themselves the tanh is flat and they could never move."""

STILL: Final = 1.0
"""A row stands still if a window changes its closest success, or its loss as long as it has none, by less than this
part over the number of steps, and is done if a whole descent does: who pays for more of them wants it finer."""

WANDERS: Final = 0.5
"""Adam's mean over its root mean square: above, a row walks one way, as pixels at walls do long before it shows."""

STRIDE: Final = 0.5
"""The longest step, as a part of the way to the boundary of a linear model."""

SLOWEST: Final = 1e-3
"""The least of all rates, as a part of the greatest."""

SENSIBLE_C: Final = (1e-10, 1e10)
"""For images at the boundary, and those where the model is flat."""


@final
@register("attack", "cw")
@dataclass(frozen=True)
class CW(Attack[GradientAccess]):
    """Least |x - x0|^2 + c * hinge, by Adam through a tanh (Carlini & Wagner 2017, arXiv:1608.04644).

    `kappa` is the margin by which a point must win to count; an image that is wrong from the start counts as it is.
    Unlike in the authors' code, `initial_c=0` begins with the c that a linear model with the gradient at the clean
    image would need, and no step is longer than half the way to its boundary. A descent begins where the one before
    found its closest success, with half its rate, or stopped without one, and ends once it stands still; the search
    ends once a c that is large enough brings nothing closer. Rows descend side by side, and none waits for another.
    `abort_early=False` goes to the last step.
    """

    access = GradientAccess
    norms = (L2,)
    seeks_minimum = True

    search_steps: int = 9
    steps: int = 1000
    rate: float = 0.01
    initial_c: float = 0.0
    kappa: float = 0.0
    abort_early: bool = True

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent still finds a way."""
        view.require_margin(self.kappa)
        rows, window = self._begin(view, x0), window_of(self.steps)
        for tick in range(1, self.search_steps * self.steps + 1):
            self._step(view, rows)
            if tick % window == 0:
                idle = rows.end(self._over(rows), self._falling, growth_of(self.initial_c))
                view.mark_finished((rows.descents == self.search_steps) | (idle & self.abort_early))
            rows = _Rows(*view.drop_finished(*rows.tensors))
        return view.ball.centre

    def _begin(self, view: GradientAccess, x0: Tensor) -> "_Rows":
        """Stand at the clean images, each with the c and the rate that a linear model of it would need."""
        slope, logits = view.gradient(x0, self._minus_hinge)
        hinge, steepness = -self._minus_hinge(logits, view.goal), slope.flatten(1).norm(dim=1)
        needed = (2 * hinge / steepness.square()).nan_to_num(0.0).clamp(*SENSIBLE_C)
        rows = _Rows.at(x0, *first_c(self.initial_c, needed))
        stride = ((1 - rows.start.square()) / 2).flatten(1).norm(dim=1).float()  # of Adam's first step at a rate of 1
        rows.rate = (STRIDE * hinge / steepness / stride).nan_to_num(0.0).clamp(SLOWEST * self.rate, self.rate)
        return _Rows(*view.drop_finished(*rows.tensors))

    def _step(self, view: GradientAccess, rows: "_Rows") -> None:
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
        return over | ~rows.moves(self._falling) if self.abort_early else over

    @property
    def _falling(self) -> float:
        """What is less than this part of what it was has fallen."""
        return 1 - STILL / self.steps

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        return -(goal.margin(logits) + self.kappa).clamp(min=0)


@final
@dataclass
class _Rows(Rows):
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
    closest: Tensor  # success of the descents before
    nearest: Tensor  # success of this descent
    nearest_before: Tensor  # at the last look
    lowest: Tensor  # loss of this descent
    lowest_before: Tensor
    holds: Tensor  # won since the last look: at the end of a descent, its c is large enough
    lost: Tensor  # never won

    @classmethod
    def at(cls, x0: Tensor, c: Tensor, low: Tensor) -> Self:
        """Stand at the clean images."""
        w, still = _unbounded(x0), torch.zeros_like(x0)
        zero, endless = torch.zeros_like(c), torch.full_like(c, torch.inf)
        never, clock, no = endless.double(), zero.long(), zero.bool()
        return cls(w, w.tanh(), w, still, still, c, low, endless, zero, clock, clock, *(never,) * 5, no, ~no)

    def look(self, won: Tensor, distance: Tensor, loss: Tensor) -> None:
        """Remember what was seen where the rows are."""
        closer = won & (distance < self.nearest)
        self.best = where_rows(closer, self.w, self.best)
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

    def end(self, over: Tensor, falling: float, growth: float) -> Tensor:
        """End these descents and begin the next of each row with another c; say which rows it would bring no closer."""
        idle = over & self.holds & (self.nearest >= falling * self.closest)
        self.closest = torch.where(over, torch.minimum(self.closest, self.nearest), self.closest)
        finer = over & ~self.lost
        self.c, self.low, self.high = bisected(self.c, self.low, self.high, over, self.holds, growth)
        self.rate = torch.where(finer, FINER * self.rate, self.rate)
        self.w = where_rows(finer, self.best, self.w)
        self.mean, self.square = (where_rows(over, 0, m) for m in (self.mean, self.square))
        self.nearest, self.lowest = (torch.where(over, torch.inf, least) for least in (self.nearest, self.lowest))
        self.nearest_before, self.lowest_before = self.nearest, self.lowest
        self.descents, self.steps = self.descents + over, torch.where(over, 0, self.steps)
        self.holds = torch.zeros_like(self.holds)
        return idle


def _unbounded(x: Tensor) -> Tensor:
    """Return what the tanh makes of an image."""
    return ((2 * x.double() - 1) * INSIDE).atanh()
