"""Elastic-net attack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, final

import torch
from torch import Tensor

from assay.attacks.attack import Attack
from assay.attacks.descents import Rows, bisected, window_of
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L1, Goal, per_row, where_rows

PROGRESS: Final = 0.3
"""A row makes progress if a window takes more than this part, over the number of steps, off its loss."""

HALVINGS: Final = 8
"""Looks between the clean image and each of the best points, for where the boundary is."""


def _elastic_net(attack: "EAD", delta: Tensor) -> Tensor:
    """Return squared L2 + beta * L1."""
    return delta.square().sum(-1) + attack.beta * delta.abs().sum(-1)


@final
@register("attack", "ead")
@dataclass(frozen=True)
class EAD(Attack[WhiteBox]):
    """Least c * hinge + squared L2 + beta * L1, by FISTA, over a search for c (Chen et al. 2018, arXiv:1709.04114).

    As in the authors' code, shrinkage takes off beta whatever the step size, so the net tightens as steps shorten. One
    run follows both of the authors' rules of what is best: the point it is judged by has the least L1 of all points
    seen; that of the least squared L2 + beta * L1 is recorded beside it.

    Unlike in that code, only look-ahead points are looked at, clipped to the box, as gradients are taken there anyway.
    A descent ends once its loss no longer falls, or the net has pulled it back from success; a c at which no pixel
    would move is passed over; and at last the best points are moved towards the clean images, to the boundary. Rows
    descend side by side, each with its own c, and none waits for another. `abort_early=False` goes to the last step.
    """

    access = WhiteBox
    norms = (L1,)
    seeks_minimum = True
    rules: ClassVar[Mapping[str, Callable[[Any, Tensor], Tensor]]] = {"elastic-net": _elastic_net}

    steps: int = 1000
    search_steps: int = 9
    beta: float = 1e-3
    rate: float = 0.01
    initial_c: float = 1e-3
    abort_early: bool = True

    def __call__(self, view: WhiteBox, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent still finds a way, then close in on the boundary."""
        rows = _Rows.at(x0, self.initial_c)
        if self.abort_early:
            rows = self._pass_over(view, rows)
        loosest = self._descend(view, rows)
        moves = torch.stack((view.closest(), loosest), 1) - view.ball.centre[:, None]
        low, high = torch.zeros(moves.shape[:2], device=x0.device), torch.ones(moves.shape[:2], device=x0.device)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            won = view.goal.reached(view.scores(view.ball.centre[:, None] + per_row(middle, moves) * moves))
            low, high = torch.where(won, low, middle), torch.where(won, middle, high)
            moves, low, high = view.keep(moves, low, high)
        return view.ball.centre

    def _pass_over(self, view: WhiteBox, rows: "_Rows") -> "_Rows":
        """Raise each c that is too small to move any pixel of its image: that descent would stand still."""
        slope, _ = view.gradient(rows.x, _closeness)
        steepest = slope.flatten(1).abs().amax(1)
        for _ in range(self.search_steps - 1):
            rows.search(self.rate * rows.c * steepest <= self.beta)
        return _Rows(*view.keep(*rows.tensors))

    def _descend(self, view: WhiteBox, rows: "_Rows") -> Tensor:
        """Make all descents, and return the successes with the least net."""
        rows.row = torch.arange(len(rows.row), device=rows.row.device)  # of those that the view still holds
        loosest, inner, window = rows.x.clone(), view.among(rows.row), window_of(self.steps)
        for tick in range(1, self.search_steps * self.steps + 1):
            self._step(inner, rows)
            if tick % window == 0:
                rows.end(self._over(rows), inner.ball.centre)
                loosest[rows.row] = rows.loosest
                going = rows.descents < self.search_steps
                inner, rows = inner.among(going), _Rows(*(tensor[going] for tensor in rows.tensors))
            rows = _Rows(*inner.keep(*rows.tensors))
            if not len(rows.row):
                break
        return loosest

    def _step(self, view: WhiteBox, rows: "_Rows") -> None:
        """Look at where the rows are about to go, and go on from there."""
        centre, y = view.ball.centre, rows.y
        slope, logits = view.gradient(y, _closeness)
        hinge = view.goal.margin(logits).clamp(min=0)
        net = _elastic_net(self, (y - centre).flatten(1).double())
        rows.look(view.goal.reached(logits), net, net + rows.c * hinge)
        rate = per_row(self.rate * (1 - rows.steps / self.steps).sqrt(), y)
        ahead = y + rate * (per_row(rows.c, y) * slope - 2 * (y - centre))
        rows.go((centre + _shrink(ahead - centre, self.beta)).clamp(0, 1))

    def _over(self, rows: "_Rows") -> Tensor:
        """Say whose descent is at its end: at its last step, without progress, or pulled back from success."""
        over = rows.steps == self.steps
        falls = rows.lowest < (1 - PROGRESS / self.steps) * rows.lowest_before
        return over | ~torch.where(rows.won, rows.wins, falls) if self.abort_early else over


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
    descents: Tensor  # that have ended
    steps: Tensor  # of this descent
    lowest: Tensor  # loss of this descent
    lowest_before: Tensor  # at the last look at progress
    won: Tensor  # in this descent: its c is large enough
    wins: Tensor  # since the last look

    @classmethod
    def at(cls, x0: Tensor, c: float) -> Self:
        """Stand at the clean images."""
        first = torch.full((len(x0),), c, device=x0.device)
        zero, endless = torch.zeros_like(first), torch.full_like(first, torch.inf)
        never, clock, no = endless.double(), zero.long(), zero.bool()
        row = torch.arange(len(x0), device=x0.device)
        return cls(row, x0, x0, x0, never, first, zero, endless, clock, clock, never, never, no, no)

    def look(self, won: Tensor, net: Tensor, loss: Tensor) -> None:
        """Remember what was seen at the look-ahead points."""
        looser = won & (net < self.net)
        self.loosest, self.net = where_rows(looser, self.y, self.loosest), torch.where(looser, net, self.net)
        self.lowest, self.won, self.wins = torch.minimum(self.lowest, loss), self.won | won, self.wins | won

    def go(self, x: Tensor) -> None:
        """Go to x, and look ahead from there."""
        self.steps = self.steps + 1
        self.x, self.y = x, (x + per_row(self.steps / (self.steps + 3), x) * (x - self.x)).clamp(0, 1)

    def search(self, over: Tensor) -> None:
        """Count a descent of these rows, and choose their next c."""
        self.c, self.low, self.high = bisected(self.c, self.low, self.high, over, self.won)
        self.descents = self.descents + over

    def end(self, over: Tensor, clean: Tensor) -> None:
        """End these descents, and begin the next of each row at its clean image; the others go on."""
        self.search(over)
        self.x, self.y = where_rows(over, clean, self.x), where_rows(over, clean, self.y)
        self.steps, self.lowest = torch.where(over, 0, self.steps), torch.where(over, torch.inf, self.lowest)
        self.lowest_before, self.won, self.wins = self.lowest, self.won & ~over, torch.zeros_like(self.wins)


def _shrink(delta: Tensor, beta: float) -> Tensor:
    """Bring every value closer to zero by beta."""
    return delta - delta.clamp(-beta, beta)


def _closeness(logits: Tensor, goal: Goal) -> Tensor:
    """Minus the hinge: flat once the goal is reached."""
    return -goal.margin(logits).clamp(min=0)
