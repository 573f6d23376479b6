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

WINDOW: Final = 10
"""Steps after which progress is looked at, or a tenth of all steps if that is more."""

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
    stopped without one, and a row rests once it stands still: about as near for a third of the gradients.
    `abort_early=False` goes to the last step.
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
        rate, w, lost = torch.full_like(c, self.rate), _unbounded(x0), torch.ones_like(c, dtype=torch.bool)
        for _ in range(self.search_steps):
            holds, lost, w = self._descend(view.among(torch.ones_like(lost)), c, rate, w, lost)
            low, high = torch.where(holds, low, c), torch.where(holds, c, high)
            c = torch.where(high.isinf(), 10 * c, (low + high) / 2)
            rate = torch.where(lost, rate, FINER * rate)
            c, low, high, rate, w, lost = view.keep(c, low, high, rate, w, lost)
        return view.ball.centre

    def _descend(
        self, view: WhiteBox, c: Tensor, rate: Tensor, w: Tensor, lost: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Minimise the loss at each row's c; say where it holds, which rows are lost, and where to begin the next time.

        c holds if a row wins by kappa to the end, in its last window: it may begin at a success and slide back. The
        next descent begins at the closest success of all; a row that has had none is lost, and goes on from its end.
        """
        best, holds, row = w.clone(), torch.zeros_like(lost), torch.arange(len(c), device=c.device)
        lost = lost.clone()
        nearest = lowest = torch.full_like(c, torch.inf, dtype=torch.float64)
        nearest_before = lowest_before = lowest
        c, rate, start = per_row(c, w), per_row(rate, w), _unbounded(view.ball.centre).tanh()
        mean, square = torch.zeros_like(view.ball.centre), torch.zeros_like(view.ball.centre)
        window, falling = max(WINDOW, self.steps // 10), 1 - STILL / self.steps
        for step in range(1, self.steps + 1):
            tanh = w.tanh()
            x = (view.ball.centre + (tanh - start) / 2).float().clamp(0, 1)  # the clean image itself at first
            climb, logits = view.gradient(x, self._minus_hinge)
            distance = view.ball.distance(x)
            won = view.goal.reached(logits) & (view.goal.margin(logits) <= -self.kappa)
            closer = won & (distance < nearest)
            nearest = torch.where(closer, distance, nearest)
            holds[row[won]], lost[row[won]] = True, False
            best[row[closer]] = w[closer]

            slope = (2 * (x - view.ball.centre) - c * climb) * ((1 - tanh.square()) / 2).float()
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope.square()
            direction = (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
            w = w - rate * direction

            lowest = torch.minimum(lowest, distance.square() - c.flatten() * self._minus_hinge(logits, view.goal))
            best[row[lost[row]]] = w[lost[row]]
            if step % window == 0 and step < self.steps:
                wanders = direction.flatten(1).abs().mean(1) > WANDERS
                falls = wanders | (lowest < falling * lowest_before)
                moves = torch.where(lost[row], falls, nearest < falling * nearest_before)
                going = moves if self.abort_early else torch.ones_like(moves)
                holds[row[going]] = False
                nearest_before, lowest_before = nearest, lowest
                view = view.among(going)
                row, c, rate, nearest, nearest_before, lowest, lowest_before, w, start, mean, square = (
                    tensor[going]
                    for tensor in (
                        *(row, c, rate, nearest, nearest_before, lowest, lowest_before),
                        *(w, start, mean, square),
                    )
                )
            row, c, rate, nearest, nearest_before, lowest, lowest_before, w, start, mean, square = view.keep(
                row, c, rate, nearest, nearest_before, lowest, lowest_before, w, start, mean, square
            )
            if not len(row):
                break
        return holds, lost, best

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        return -(goal.margin(logits) + self.kappa).clamp(min=0)


def _unbounded(x: Tensor) -> Tensor:
    """Return what the tanh makes of an image."""
    return ((2 * x.double() - 1) * INSIDE).atanh()
