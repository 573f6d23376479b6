"""Elastic-net attack."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import torch
from torch import Tensor

from assay.attacks.attack import Attack
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L1, Goal, per_row

PROGRESS: Final = 0.9999
"""A loss falls if a tenth of the steps brings it below this part of what it was."""

SHORTEST: Final = 10
"""Steps that are watched for it at least: look-ahead makes the loss swing."""


def _elastic_net(attack: "EAD", delta: Tensor) -> Tensor:
    """Return squared L2 + beta * L1."""
    return delta.square().sum(-1) + attack.beta * delta.abs().sum(-1)


@final
@register("attack", "ead")
@dataclass(frozen=True)
class EAD(Attack[WhiteBox]):
    """Least c * hinge + squared L2 + beta * L1, by FISTA, over a search for c (Chen et al. 2018, arXiv:1709.04114).

    As in the authors' code, shrinkage takes off beta whatever the step size, and c counts as good if an iterate
    (not a look-ahead point) reaches the goal. Look-ahead points are clipped to the box, outside of which a model
    need not answer. One run follows both of the authors' rules of what is best: the point it is judged by has the least
    L1 of all points seen; that of the least squared L2 + beta * L1 is recorded beside it.

    A row whose loss no longer falls rests, but not once its c is good: as steps shorten and beta does not, the net
    tightens, and L1 falls to the last step while the loss rises.
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
        """Bisect, row by row, for the smallest c that reaches the goal."""
        c = torch.full((len(x0),), self.initial_c, dtype=torch.float64, device=x0.device)
        low, high = torch.zeros_like(c), torch.full_like(c, torch.inf)
        for _ in range(self.search_steps):
            found = self._descend(view, c)
            low, high = torch.where(found, low, c), torch.where(found, c, high)
            c = torch.where(high < torch.inf, (low + high) / 2, 10 * c)
            c, low, high = view.keep(c, low, high)
        return view.ball.centre

    def _descend(self, view: WhiteBox, weight: Tensor) -> Tensor:
        """Run FISTA from the clean images, each row with its c, and say which rows reached the goal."""
        found = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
        rows = torch.arange(len(weight), device=weight.device)
        inner = view.among(rows)
        x = y = view.ball.centre
        c, lowest = weight, torch.full_like(weight, torch.inf)
        before = lowest
        for k in range(self.steps):
            hinge_slope, _ = inner.gradient(y, _closeness)
            x0 = inner.ball.centre
            descent = per_row(c.to(x.dtype), x) * hinge_slope - 2 * (y - x0)
            rate = self.rate * math.sqrt(1 - k / self.steps)
            last, x = x, (x0 + _shrink(y + rate * descent - x0, self.beta)).clamp(0, 1)
            y = (x + (k + 1) / (k + 4) * (x - last)).clamp(0, 1)
            logits = inner.scores(x)
            found[rows[inner.goal.reached(logits)]] = True
            lowest = torch.minimum(lowest, self._loss(inner, x, logits, c))
            if self.abort_early and k % max(SHORTEST, math.ceil(self.steps / 10)) == 0:
                moving, before = found[rows] | (lowest < PROGRESS * before), lowest
                inner = inner.among(moving)
                x, y, c, lowest, before, rows = (t[moving] for t in (x, y, c, lowest, before, rows))
            x, y, c, lowest, before, rows = inner.keep(x, y, c, lowest, before, rows)
            if not len(rows):
                break
        return found

    def _loss(self, view: WhiteBox, x: Tensor, logits: Tensor, c: Tensor) -> Tensor:
        delta = (x - view.ball.centre).flatten(1)
        hinge = view.goal.margin(logits).clamp(min=0)
        return c * hinge + _elastic_net(self, delta.double())


def _shrink(delta: Tensor, beta: float) -> Tensor:
    """Bring every value closer to zero by beta."""
    return delta - delta.clamp(-beta, beta)


def _closeness(logits: Tensor, goal: Goal) -> Tensor:
    """Minus the hinge: flat once the goal is reached."""
    return -goal.margin(logits).clamp(min=0)
