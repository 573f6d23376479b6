"""The elastic-net attack with fewer gradients: `ead` with an estimated first c, warm starts and early ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.fast_penalty_search import FINER, RowState, first_c, growth_of, progress_interval
from robustassay.attacks.common.penalty_search import next_c
from robustassay.attacks.nearest.ead import elastic_net, shrink
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, Goal, per_row, where_rows

TOLERANCE: Final = 0.3
"""Relative tolerance, scaled by 1 / steps: a smaller fall of the loss between two checks, or of the distance in a whole
descent, is none."""

FIRST_C: Final = 4.0
"""The first c, as a multiple of the c that a linear model needs."""

REACHABLE: Final = 0.9
"""The hinge that a linear model must close, at most, as a part of what it can close inside the pixel box."""

LARGEST_EXPONENT: Final = 10.0
"""The c of a linear model is sought between 10 to minus this and 10 to this."""

BISECTIONS: Final = 30
"""Bisections of that exponent."""

HALVINGS: Final = 8
"""Bisections between the clean image and each of the best points, to reach the boundary."""


@final
@register("attack", "ead-fast")
@dataclass(frozen=True)
class EADFast(Attack[GradientAccess]):
    """`ead` with fewer gradients: the loss of Chen et al. (2018, arXiv:1709.04114), another search.

    As in `ead`, shrinkage takes off beta however short the step, and one run follows both decision rules: the result
    has the least L1, and the point of least squared L2 + beta * L1 is recorded beside it.

    Only look-ahead points are evaluated, clipped to the box. `initial_c=0` starts with four times the c that a linear
    model with the gradient at the clean image needs. A descent starts at the closest success so far, with half the
    learning rate, and ends once its loss no longer falls or the elastic-net penalty has undone the success. The search
    ends once a whole descent comes no closer. At last the best points are moved towards the clean images, to the
    boundary. Rows descend side by side and do not wait for each other.
    """

    info = AttackInfo(
        papers=("1709.04114",),
        formula="the loss of ead; the first c by a linear model of the image;\n"
        "each descent from the closest success so far, at half the rate; then bisect towards x0",
        reference="ead",
    )
    access = GradientAccess
    norms = (L1,)
    seeks_minimum = True
    objectives: ClassVar[Mapping[str, Callable[[Any, Tensor], Tensor]]] = {"elastic-net": elastic_net}

    steps: int = 1000
    search_steps: int = 9
    beta: float = 1e-3
    """Weight of the L1 distance against the squared L2 distance."""
    rate: float = 0.01
    initial_c: float = 0.0
    """First weight of the loss against the distance; 0 takes four times what a linear model needs."""
    kappa: float = 0.0
    abort_early: bool = True

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent succeeds, then bisect towards the clean images."""
        view.require_margin(self.kappa)
        rows = self._begin(view, x0)
        best_net = self._descend(view, rows)
        moves = torch.stack((view.closest_claim(), best_net), 1) - view.ball.centre[:, None]
        low, high = torch.zeros(moves.shape[:2], device=x0.device), torch.ones(moves.shape[:2], device=x0.device)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            succeeded = self._succeeded(view, view.scores(view.ball.centre[:, None] + per_row(middle, moves) * moves))
            low, high = torch.where(succeeded, low, middle), torch.where(succeeded, middle, high)
            moves, low, high = view.drop_finished(moves, low, high)
        return view.ball.centre

    def _begin(self, view: GradientAccess, x0: Tensor) -> "_Rows":
        """Start at the clean images, with the given c or with the c that a linear model of each needs."""
        gradient, logits = view.gradient(x0, self._minus_hinge)
        needed = needed_c(x0, gradient, -self._minus_hinge(logits, view.goal), self.beta / self.rate)
        rows = _Rows.at(x0, *first_c(self.initial_c, needed, FIRST_C), self.rate)
        return _Rows(*view.drop_finished(*rows.tensors))

    def _descend(self, view: GradientAccess, rows: "_Rows") -> Tensor:
        """Make all descents, and return the successes of least squared L2 + beta * L1."""
        rows.row = torch.arange(len(rows.row), device=rows.row.device)  # of those that the view still holds
        best_net, inner, window = rows.x.clone(), view.subset(rows.row), progress_interval(self.steps)
        for iteration in range(1, self.search_steps * self.steps + 1):
            self._step(inner, rows)
            if iteration % window == 0:
                distance = inner.claimed_distance()
                ended = self._ended(rows)
                exhausted = ended & rows.succeeded & (distance >= self._fall * rows.distance)
                rows.end(ended, inner.closest_claim(), distance, growth_of(self.initial_c))
                best_net[rows.row] = rows.best_net
                going = (rows.descents < self.search_steps) & ~(exhausted & self.abort_early)
                inner, rows = inner.subset(going), _Rows(*(tensor[going] for tensor in rows.tensors))
            rows = _Rows(*inner.drop_finished(*rows.tensors))
            if not len(rows.row):
                break
        return best_net

    def _step(self, view: GradientAccess, rows: "_Rows") -> None:
        """Evaluate the look-ahead points, and take one step from there."""
        centre, y = view.ball.centre, rows.y
        gradient, logits = view.gradient(y, self._minus_hinge)
        hinge = -self._minus_hinge(logits, view.goal)
        net = elastic_net(self, (y - centre).flatten(1).double())
        rows.observe(self._succeeded(view, logits), net, net + rows.c * hinge)
        rate = per_row(rows.rate * (1 - rows.steps / self.steps).sqrt(), y)
        ahead = y + rate * (per_row(rows.c, y) * gradient - 2 * (y - centre))
        rows.move_to((centre + shrink(ahead - centre, self.beta)).clamp(0, 1))

    def _ended(self, rows: "_Rows") -> Tensor:
        """Return the rows whose descent has ended: at its last step, without progress, or no longer successful."""
        ended = rows.steps == self.steps
        falling = rows.lowest < self._fall * rows.lowest_before
        return ended | ~torch.where(rows.succeeded, rows.recently, falling) if self.abort_early else ended

    def _succeeded(self, view: GradientAccess, logits: Tensor) -> Tensor:
        """Return which points reach the goal by the margin asked for."""
        return view.goal.reached(logits) & (view.goal.margin(logits) <= -self.kappa)

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        """Return the loss to maximise: zero once the goal is reached by the margin asked for."""
        return -(goal.margin(logits) + self.kappa).clamp(min=0)

    @property
    def _fall(self) -> float:
        """A value has fallen if it is below this part of its old value."""
        return 1 - TOLERANCE / self.steps


@final
@dataclass
class _Rows(RowState):
    """The descents: each row has its own c, learning rate and step count."""

    row: Tensor
    x: Tensor
    y: Tensor  # the look-ahead point
    best_net: Tensor  # the success of least squared L2 + beta * L1 in all descents
    net: Tensor  # its value
    c: Tensor
    low: Tensor
    high: Tensor
    rate: Tensor
    descents: Tensor  # that have ended
    steps: Tensor  # of this descent
    lowest: Tensor  # loss of this descent
    lowest_before: Tensor  # at the check before
    distance: Tensor  # of the closest success of the descents before
    succeeded: Tensor  # in this descent, so its c is large enough
    recently: Tensor  # succeeded since the check before

    @classmethod
    def at(cls, x0: Tensor, c: Tensor, low: Tensor, rate: float) -> Self:
        """Start at the clean images."""
        row, infinite, rates = torch.arange(len(x0), device=x0.device), torch.full_like(c, torch.inf), 0 * c + rate
        infinity, zero_steps = infinite.double(), torch.zeros_like(row)
        points, false = (x0, x0, x0), zero_steps.bool()
        return cls(
            row, *points, infinity, c, low, infinite, rates, zero_steps, zero_steps, *(infinity,) * 3, false, false
        )

    def observe(self, succeeded: Tensor, net: Tensor, loss: Tensor) -> None:
        """Update the best values of the descents."""
        better = succeeded & (net < self.net)
        self.best_net, self.net = where_rows(better, self.y, self.best_net), torch.where(better, net, self.net)
        self.lowest, self.succeeded, self.recently = (
            torch.minimum(self.lowest, loss),
            self.succeeded | succeeded,
            self.recently | succeeded,
        )

    def move_to(self, x: Tensor) -> None:
        """Move to x, and place the look-ahead point."""
        self.steps = self.steps + 1
        self.x, self.y = x, (x + per_row(self.steps / (self.steps + 3), x) * (x - self.x)).clamp(0, 1)

    def end(self, ended: Tensor, start: Tensor, distance: Tensor, growth: float) -> None:
        """Start the next descent, with another c, of the rows whose descent has ended."""
        self.c, self.low, self.high = next_c(self.c, self.low, self.high, ended, self.succeeded, growth)
        self.rate = torch.where(ended & distance.isfinite(), FINER * self.rate, self.rate)
        self.x, self.y = where_rows(ended, start, self.x), where_rows(ended, start, self.y)
        self.descents, self.steps = self.descents + ended, torch.where(ended, 0, self.steps)
        self.lowest, self.succeeded = torch.where(ended, torch.inf, self.lowest), self.succeeded & ~ended
        self.lowest_before, self.recently = self.lowest, torch.zeros_like(self.recently)
        self.distance = torch.where(ended, distance, self.distance)


def needed_c(x0: Tensor, gradient: Tensor, hinge: Tensor, weight: float) -> Tensor:
    """Return the least c at which the least squared L2 + weight * L1 + c * hinge of a linear model is a success."""
    largest = (gradient * (gradient > 0).to(x0.dtype).sub(x0)).flatten(1).sum(1)  # with every pixel at 0 or 1
    wanted, low = torch.minimum(hinge, REACHABLE * largest), torch.full_like(hinge, -LARGEST_EXPONENT)
    high = -low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        move = shrink(per_row(10**middle, gradient) * gradient, weight) / 2
        gain = (gradient * ((x0 + move).clamp(0, 1) - x0)).flatten(1).sum(1)
        low, high = torch.where(gain < wanted, middle, low), torch.where(gain < wanted, high, middle)
    return 10**high
