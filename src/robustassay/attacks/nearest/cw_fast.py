"""Carlini and Wagner's L2 attack with fewer gradients: `cw` with an estimated first c, warm starts and early ends."""

from dataclasses import dataclass
from typing import Final, Self, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common import adam
from robustassay.attacks.common.fast_penalty_search import FINER, RowState, first_c, growth_of, progress_interval
from robustassay.attacks.common.penalty_search import next_c
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L2, Goal, per_row, where_rows

INSIDE: Final = 1 - 1e-6
"""Keeps pixels off 0 and 1, where the tanh is flat."""

TOLERANCE: Final = 1.0
"""Relative tolerance, scaled by 1 / steps: a smaller change between two checks, or in a whole descent, is none."""

DRIFT: Final = 0.5
"""Mean absolute value of Adam's direction: above this, the row still drifts in one direction and has not converged."""

LONGEST_STEP: Final = 0.5
"""The longest step, as a part of the distance to the boundary of a linear model."""

SMALLEST_RATE: Final = 1e-3
"""The smallest learning rate, as a part of `rate`."""

C_RANGE: Final = (1e-10, 1e10)
"""Limits of the estimated c, for images at the boundary and for flat models."""


@final
@register("attack", "cw-fast")
@dataclass(frozen=True)
class CWFast(Attack[GradientAccess]):
    """`cw` with fewer gradients: the loss of Carlini & Wagner (2017, arXiv:1608.04644), another search.

    `initial_c=0` starts with the c that a linear model with the gradient at the clean image needs, and no step is
    longer than half the distance to its boundary. A descent starts at the closest success of the one before, with half
    its learning rate, or where it stopped without success. It ends once it makes no progress; the search ends once a c
    that is large enough brings no row closer. Rows descend side by side and do not wait for each other.
    """

    info = AttackInfo(
        papers=("1608.04644",),
        formula="the loss of cw; the first c and the step length by a linear model of the image;\n"
        "each descent from the closest success so far, at half the rate",
        reference="cw",
    )
    access = GradientAccess
    norms = (L2,)
    seeks_minimum = True

    search_steps: int = 9
    steps: int = 1000
    rate: float = 0.01
    initial_c: float = 0.0
    """First weight of the loss against the distance; 0 takes the one that a linear model needs."""
    kappa: float = 0.0
    abort_early: bool = True

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent succeeds."""
        view.require_margin(self.kappa)
        rows, window = self._begin(view, x0), progress_interval(self.steps)
        for iteration in range(1, self.search_steps * self.steps + 1):
            self._step(view, rows)
            if iteration % window == 0:
                exhausted = rows.end(self._ended(rows), self._fall, growth_of(self.initial_c))
                view.mark_finished((rows.descents == self.search_steps) | (exhausted & self.abort_early))
            rows = _Rows(*view.drop_finished(*rows.tensors))
        return view.ball.centre

    def _begin(self, view: GradientAccess, x0: Tensor) -> "_Rows":
        """Start at the clean images, with the c and the learning rate that a linear model of each needs."""
        gradient, logits = view.gradient(x0, self._minus_hinge)
        hinge, gradient_norm = -self._minus_hinge(logits, view.goal), gradient.flatten(1).norm(dim=1)
        needed = (2 * hinge / gradient_norm.square()).nan_to_num(0.0).clamp(*C_RANGE)
        rows = _Rows.at(x0, *first_c(self.initial_c, needed))
        first_step = ((1 - rows.start.square()) / 2).flatten(1).norm(dim=1).float()  # Adam's, at a rate of 1
        rate = (LONGEST_STEP * hinge / gradient_norm / first_step).nan_to_num(0.0)
        rows.rate = rate.clamp(SMALLEST_RATE * self.rate, self.rate)
        return _Rows(*view.drop_finished(*rows.tensors))

    def _step(self, view: GradientAccess, rows: "_Rows") -> None:
        """Evaluate the rows where they are, and take one step."""
        centre, c = view.ball.centre, per_row(rows.c, rows.w)
        tanh = rows.w.tanh()
        x = (centre + (tanh - rows.start) / 2).float().clamp(0, 1)  # exactly the clean image at first
        gradient, logits = view.gradient(x, self._minus_hinge)
        distance = view.ball.distance(x)
        succeeded = view.goal.reached(logits) & (view.goal.margin(logits) <= -self.kappa)
        rows.observe(succeeded, distance, distance.square() - rows.c * self._minus_hinge(logits, view.goal))
        rows.descend((2 * (x - centre) - c * gradient) * ((1 - tanh.square()) / 2).float())

    def _ended(self, rows: "_Rows") -> Tensor:
        """Return the rows whose descent has ended: at its last step, or without progress."""
        ended = rows.steps == self.steps
        return ended | ~rows.progresses(self._fall) if self.abort_early else ended

    @property
    def _fall(self) -> float:
        """A value has fallen if it is below this part of its old value."""
        return 1 - TOLERANCE / self.steps

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        return -(goal.margin(logits) + self.kappa).clamp(min=0)


@final
@dataclass
class _Rows(RowState):
    """The descents: each row has its own c, learning rate and step count."""

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
    nearest_before: Tensor  # at the check before
    lowest: Tensor  # loss of this descent
    lowest_before: Tensor
    enough: Tensor  # succeeded since the check before: at the end of a descent, its c is large enough
    unsolved: Tensor  # no success in any descent

    @classmethod
    def at(cls, x0: Tensor, c: Tensor, low: Tensor) -> Self:
        """Start at the clean images."""
        w, zeros = _unbounded(x0), torch.zeros_like(x0)
        zero, infinite = torch.zeros_like(c), torch.full_like(c, torch.inf)
        infinity, zero_steps, false = infinite.double(), zero.long(), zero.bool()
        moments, least = (zeros, zeros), (infinity,) * 5
        return cls(w, w.tanh(), w, *moments, c, low, infinite, zero, zero_steps, zero_steps, *least, false, ~false)

    def observe(self, succeeded: Tensor, distance: Tensor, loss: Tensor) -> None:
        """Update the best values of the descents."""
        closer = succeeded & (distance < self.nearest)
        self.best = where_rows(closer, self.w, self.best)
        self.nearest = torch.where(closer, distance, self.nearest)
        self.lowest = torch.minimum(self.lowest, loss)
        self.enough, self.unsolved = self.enough | succeeded, self.unsolved & ~succeeded

    def descend(self, gradient: Tensor) -> None:
        """Take one step of Adam."""
        self.steps = self.steps + 1
        self.mean, self.square = adam.update_moments(self.mean, self.square, gradient)
        self.w = self.w - per_row(self.rate, self.w) * self._direction()

    def _direction(self) -> Tensor:
        return adam.direction(self.mean, self.square, per_row(self.steps.double(), self.mean))

    def progresses(self, fall: float) -> Tensor:
        """Return the rows that made progress since the check before, or still drift."""
        drifts = self._direction().flatten(1).abs().mean(1) > DRIFT
        falls = drifts | (self.lowest < fall * self.lowest_before)
        return torch.where(self.unsolved, falls, self.nearest < fall * self.nearest_before)

    def end(self, ended: Tensor, fall: float, growth: float) -> Tensor:
        """Start the next descent of the rows whose descent has ended; return those that it would bring no closer."""
        exhausted = ended & self.enough & (self.nearest >= fall * self.closest)
        self.closest = torch.where(ended, torch.minimum(self.closest, self.nearest), self.closest)
        solved = ended & ~self.unsolved
        self.c, self.low, self.high = next_c(self.c, self.low, self.high, ended, self.enough, growth)
        self.rate = torch.where(solved, FINER * self.rate, self.rate)
        self.w = where_rows(solved, self.best, self.w)
        self.mean, self.square = (where_rows(ended, 0, m) for m in (self.mean, self.square))
        self.nearest, self.lowest = (torch.where(ended, torch.inf, least) for least in (self.nearest, self.lowest))
        self.nearest_before, self.lowest_before = self.nearest, self.lowest
        self.descents, self.steps = self.descents + ended, torch.where(ended, 0, self.steps)
        self.enough = torch.zeros_like(self.enough)
        return exhausted


def _unbounded(x: Tensor) -> Tensor:
    """Return the w whose tanh is the image, scaled to [-1, 1]."""
    return ((2 * x.double() - 1) * INSIDE).atanh()
