"""Elastic-net attack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.attacks.common.penalty_search import FINER, Rows, bisected, first_c, growth_of, window_of
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, Goal, per_row, where_rows

PROGRESS: Final = 0.3
"""A row makes progress if a window takes more than this part, over the number of steps, off its loss, and is done if a
whole descent takes no more off its closest success."""

AMPLE: Final = 4.0
"""The first c that is tried, in units of what a linear model needs."""

REACHABLE: Final = 0.9
"""A linear model is asked for no more than this part of what it can give inside the box."""

LARGEST: Final = 10.0
"""The exponent of the largest c that is looked for."""

BISECTIONS: Final = 30
"""How often the exponents are halved."""

HALVINGS: Final = 8
"""Looks between the clean image and each of the best points, for where the boundary is."""


def _elastic_net(attack: "EAD", delta: Tensor) -> Tensor:
    """Return squared L2 + beta * L1."""
    return delta.square().sum(-1) + attack.beta * delta.abs().sum(-1)


@final
@register("attack", "ead")
@dataclass(frozen=True)
class EAD(Attack[GradientAccess]):
    """Least c * hinge + squared L2 + beta * L1, by FISTA, over a search for c (Chen et al. 2018, arXiv:1709.04114).

    As in the authors' code, shrinkage takes off beta however short the steps of a descent become, so the net tightens.
    One run follows both decision rules of the authors: the point it is judged by has the least L1 seen;
    the point of least squared L2 + beta * L1 is recorded beside it.

    Unlike in that code, only look-ahead points are looked at, clipped to the box, as gradients are taken there anyway.
    `initial_c=0` begins with four times the c that a linear model with the gradient at the clean image would need. A
    descent begins at the closest success so far, with half the rate, and ends once its loss no longer falls, or the net
    has pulled it back from success; the search ends once a whole descent comes no closer; and at last the best points
    are moved towards the clean images, to the boundary. Rows descend side by side, each with its own c, and none waits
    for another. `abort_early=False` goes to the last step.
    """

    access = GradientAccess
    norms = (L1,)
    seeks_minimum = True
    objectives: ClassVar[Mapping[str, Callable[[Any, Tensor], Tensor]]] = {"elastic-net": _elastic_net}

    steps: int = 1000
    search_steps: int = 9
    beta: float = 1e-3
    rate: float = 0.01
    initial_c: float = 0.0
    abort_early: bool = True

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent still finds a way, then close in on the boundary."""
        rows = self._begin(view, x0)
        loosest = self._descend(view, rows)
        moves = torch.stack((view.closest_claim(), loosest), 1) - view.ball.centre[:, None]
        low, high = torch.zeros(moves.shape[:2], device=x0.device), torch.ones(moves.shape[:2], device=x0.device)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            won = view.goal.reached(view.scores(view.ball.centre[:, None] + per_row(middle, moves) * moves))
            low, high = torch.where(won, low, middle), torch.where(won, middle, high)
            moves, low, high = view.drop_finished(moves, low, high)
        return view.ball.centre

    def _begin(self, view: GradientAccess, x0: Tensor) -> "_Rows":
        """Stand at the clean images, each with the c that was given, or that a linear model of it asks for."""
        slope, logits = view.gradient(x0, _closeness)
        needed = _needed(x0, slope, view.goal.margin(logits).clamp(min=0), self.beta / self.rate)
        rows = _Rows.at(x0, *first_c(self.initial_c, needed, AMPLE), self.rate)
        return _Rows(*view.drop_finished(*rows.tensors))

    def _descend(self, view: GradientAccess, rows: "_Rows") -> Tensor:
        """Make all descents, and return the successes with the least net."""
        rows.row = torch.arange(len(rows.row), device=rows.row.device)  # of those that the view still holds
        loosest, inner, window = rows.x.clone(), view.subset(rows.row), window_of(self.steps)
        for tick in range(1, self.search_steps * self.steps + 1):
            self._step(inner, rows)
            if tick % window == 0:
                distance = inner.claimed_distance()
                over = self._over(rows)
                idle = over & rows.won & (distance >= self._falling * rows.distance)
                rows.end(over, inner.closest_claim(), distance, growth_of(self.initial_c))
                loosest[rows.row] = rows.loosest
                going = (rows.descents < self.search_steps) & ~(idle & self.abort_early)
                inner, rows = inner.subset(going), _Rows(*(tensor[going] for tensor in rows.tensors))
            rows = _Rows(*inner.drop_finished(*rows.tensors))
            if not len(rows.row):
                break
        return loosest

    def _step(self, view: GradientAccess, rows: "_Rows") -> None:
        """Look at where the rows are about to go, and go on from there."""
        centre, y = view.ball.centre, rows.y
        slope, logits = view.gradient(y, _closeness)
        hinge = view.goal.margin(logits).clamp(min=0)
        net = _elastic_net(self, (y - centre).flatten(1).double())
        rows.look(view.goal.reached(logits), net, net + rows.c * hinge)
        rate = per_row(rows.rate * (1 - rows.steps / self.steps).sqrt(), y)
        ahead = y + rate * (per_row(rows.c, y) * slope - 2 * (y - centre))
        rows.go((centre + _shrink(ahead - centre, self.beta)).clamp(0, 1))

    def _over(self, rows: "_Rows") -> Tensor:
        """Say whose descent is at its end: at its last step, without progress, or pulled back from success."""
        over = rows.steps == self.steps
        falls = rows.lowest < self._falling * rows.lowest_before
        return over | ~torch.where(rows.won, rows.wins, falls) if self.abort_early else over

    @property
    def _falling(self) -> float:
        """What is less than this part of what it was has fallen."""
        return 1 - PROGRESS / self.steps


@final
@dataclass
class _Rows(Rows):
    """Rows on their way, each with a c and a clock of its own."""

    row: Tensor
    x: Tensor
    y: Tensor  # the look-ahead point
    loosest: Tensor  # the success of all descents with the least net
    net: Tensor  # its squared L2 + beta * L1
    c: Tensor
    low: Tensor
    high: Tensor
    rate: Tensor
    descents: Tensor  # that have ended
    steps: Tensor  # of this descent
    lowest: Tensor  # loss of this descent
    lowest_before: Tensor  # at the last look at progress
    distance: Tensor  # of the closest success of the descents before
    won: Tensor  # in this descent: its c is large enough
    wins: Tensor  # since the last look

    @classmethod
    def at(cls, x0: Tensor, c: Tensor, low: Tensor, rate: float) -> Self:
        """Stand at the clean images."""
        row, endless, rates = torch.arange(len(x0), device=x0.device), torch.full_like(c, torch.inf), 0 * c + rate
        never, clock = endless.double(), torch.zeros_like(row)
        return cls(
            row, x0, x0, x0, never, c, low, endless, rates, clock, clock, *(never,) * 3, clock.bool(), clock.bool()
        )

    def look(self, won: Tensor, net: Tensor, loss: Tensor) -> None:
        """Remember what was seen at the look-ahead points."""
        looser = won & (net < self.net)
        self.loosest, self.net = where_rows(looser, self.y, self.loosest), torch.where(looser, net, self.net)
        self.lowest, self.won, self.wins = torch.minimum(self.lowest, loss), self.won | won, self.wins | won

    def go(self, x: Tensor) -> None:
        """Go to x, and look ahead from there."""
        self.steps = self.steps + 1
        self.x, self.y = x, (x + per_row(self.steps / (self.steps + 3), x) * (x - self.x)).clamp(0, 1)

    def end(self, over: Tensor, start: Tensor, distance: Tensor, growth: float) -> None:
        """End these descents, and begin the next of each row from its start with another c; the others go on."""
        self.c, self.low, self.high = bisected(self.c, self.low, self.high, over, self.won, growth)
        self.rate = torch.where(over & distance.isfinite(), FINER * self.rate, self.rate)
        self.x, self.y = where_rows(over, start, self.x), where_rows(over, start, self.y)
        self.descents, self.steps = self.descents + over, torch.where(over, 0, self.steps)
        self.lowest, self.won = torch.where(over, torch.inf, self.lowest), self.won & ~over
        self.lowest_before, self.wins = self.lowest, torch.zeros_like(self.wins)
        self.distance = torch.where(over, distance, self.distance)


def _needed(x0: Tensor, slope: Tensor, hinge: Tensor, weight: float) -> Tensor:
    """Return the least c at which the least squared L2 + weight * L1 + c * hinge of a linear model is a success."""
    most = (slope * (slope > 0).to(x0.dtype).sub(x0)).flatten(1).sum(1)  # towards the walls
    wanted, low = torch.minimum(hinge, REACHABLE * most), torch.full_like(hinge, -LARGEST)
    high = -low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        move = _shrink(per_row(10**middle, slope) * slope, weight) / 2
        gain = (slope * ((x0 + move).clamp(0, 1) - x0)).flatten(1).sum(1)
        low, high = torch.where(gain < wanted, middle, low), torch.where(gain < wanted, high, middle)
    return 10**high


def _shrink(delta: Tensor, beta: float) -> Tensor:
    """Bring every value closer to zero by beta."""
    return delta.sign() * (delta.abs() - beta).clamp(min=0)


def _closeness(logits: Tensor, goal: Goal) -> Tensor:
    """Minus the hinge: flat once the goal is reached."""
    return -goal.margin(logits).clamp(min=0)
