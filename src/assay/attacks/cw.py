"""Carlini and Wagner's L2 attack."""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from assay.attacks.attack import Attack
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L2, Goal, per_row

INSIDE: Final = 1 - 1e-6
"""Pulls pixels off the walls: at 0 and 1 themselves the tanh is flat and they could never move."""

SHORTEST: Final = 50
"""Steps a row is given before it is said to stand still: Adam's momentum swings for some tens of steps."""


@final
@register("attack", "cw")
@dataclass(frozen=True)
class CW(Attack[WhiteBox]):
    """Least |x - x0|^2 + c * hinge, by Adam through a tanh (Carlini & Wagner 2017, arXiv:1608.04644).

    `kappa` is the margin by which a point must win to count; an image that is wrong from the start counts as it is.
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
        c = torch.full((len(x0),), self.initial_c, device=x0.device)
        low, high = torch.zeros_like(c), torch.full_like(c, torch.inf)
        for _ in range(self.search_steps):
            found = self._descend(view.among(torch.ones_like(c, dtype=torch.bool)), c)
            low, high = torch.where(found, low, c), torch.where(found, c, high)
            c = torch.where(high.isinf(), 10 * c, (low + high) / 2)
            c, low, high = view.keep(c, low, high)
        return view.ball.centre

    def _descend(self, view: WhiteBox, c: Tensor) -> Tensor:
        """Minimise the loss at each row's c; say which rows won by kappa on the way."""
        found, row = torch.zeros_like(c, dtype=torch.bool), torch.arange(len(c), device=c.device)
        lowest = previous = torch.full_like(c, torch.inf, dtype=torch.float64)
        c = per_row(c, view.ball.centre)
        w = ((2 * view.ball.centre.double() - 1) * INSIDE).atanh()
        start, mean, square = w.tanh(), torch.zeros_like(view.ball.centre), torch.zeros_like(view.ball.centre)
        for step in range(1, self.steps + 1):
            tanh = w.tanh()
            x = (view.ball.centre + (tanh - start) / 2).float().clamp(0, 1)  # the clean image itself at first
            climb, logits = view.gradient(x, self._minus_hinge)
            found[row[view.goal.reached(logits) & (view.goal.margin(logits) <= -self.kappa)]] = True

            slope = (2 * (x - view.ball.centre) - c * climb) * ((1 - tanh.square()) / 2).float()
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope.square()
            w = w - self.rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)

            loss = view.ball.distance(x).square() - c.flatten() * self._minus_hinge(logits, view.goal)
            lowest = torch.minimum(lowest, loss)
            if self.abort_early and step % max(SHORTEST, self.steps // 10) == 0:
                going, previous = lowest <= 0.9999 * previous, lowest
                view = view.among(going)
                row, c, lowest, previous, w, start, mean, square = (
                    tensor[going] for tensor in (row, c, lowest, previous, w, start, mean, square)
                )
            row, c, lowest, previous, w, start, mean, square = view.keep(
                row, c, lowest, previous, w, start, mean, square
            )
            if not len(row):
                break
        return found

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        return -(goal.margin(logits) + self.kappa).clamp(min=0)
