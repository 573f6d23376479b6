"""The elastic-net attack EAD (Chen et al. 2018, arXiv:1709.04114): the authors' two nested loops."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.penalty_search import PenaltySearch, check_interval, stalled
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, Goal, per_row


def elastic_net(attack: Any, delta: Tensor) -> Tensor:
    """Return squared L2 + beta * L1 of flat perturbations."""
    beta: float = attack.beta
    return delta.square().sum(-1) + beta * delta.abs().sum(-1)


def shrink(delta: Tensor, beta: float) -> Tensor:
    """Bring every value closer to zero by beta."""
    return delta.sign() * (delta.abs() - beta).clamp(min=0)


@final
@register("attack", "ead")
@dataclass(frozen=True)
class EAD(Attack[GradientAccess]):
    """Minimises c * hinge + squared L2 + beta * L1 by FISTA (Chen et al. 2018, arXiv:1709.04114).

    The outer loop searches for c, the inner loop is shrinkage with momentum from the clean image. The hinge is
    max(margin + kappa, 0); only points that are misclassified by a margin of `kappa` count. One run follows both
    decision rules of the paper: the result has the least L1, and the point of least squared L2 + beta * L1 is recorded
    beside it. As in the authors' code, shrinkage takes off beta however short the step. Unlike there, look-ahead
    points are clipped to the pixel box, and each row decides by itself when to stop early, so that results do not
    depend on the batch. The last of ten or more searches does not repeat the largest c. `ead-fast` reaches the same
    distances with fewer gradients.
    """

    info = AttackInfo(
        papers=("1709.04114",),
        formula="minimise c * max(m(x) + kappa, 0) + |x - x0|_2^2 + beta * |x - x0|_1 by FISTA:\n"
        "x <- x0 + shrink(v - rate * grad - x0, beta);  v <- x + k / (k + 3) * (x - x_before);  search c as in cw",
        reference="the authors' code, ART",
    )
    access = GradientAccess
    norms = (L1,)
    seeks_minimum = True
    objectives: ClassVar[Mapping[str, Callable[[Any, Tensor], Tensor]]] = {"elastic-net": elastic_net}

    search_steps: int = 9
    steps: int = 1000
    beta: float = 1e-3
    """Weight of the L1 distance against the squared L2 distance."""
    rate: float = 0.01
    initial_c: float = 1e-3
    kappa: float = 0.0
    abort_early: bool = True

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent succeeds."""
        view.require_margin(self.kappa)
        search = PenaltySearch.start(self.initial_c, x0)
        for _ in range(self.search_steps):
            succeeded = self._descend(view.subset(torch.ones_like(search.c, dtype=torch.bool)), search.c)
            search = PenaltySearch(*view.drop_finished(*search.next(succeeded).tensors))
        return view.ball.centre

    def _descend(self, view: GradientAccess, c: Tensor) -> Tensor:
        """Minimise the loss at each row's c; return which rows succeeded on the way."""
        succeeded, row = torch.zeros_like(c, dtype=torch.bool), torch.arange(len(c), device=c.device)
        x = y = view.ball.centre  # y looks ahead of x
        loss_before = torch.full_like(c, torch.inf)
        for k in range(self.steps):
            x0, rate = view.ball.centre, self.rate * math.sqrt(1 - k / self.steps)
            gradient, _ = view.gradient(y, self._minus_hinge)
            ahead = y + rate * (per_row(c.float(), y) * gradient - 2 * (y - x0))
            x_before, x = x, (x0 + shrink(ahead - x0, self.beta)).clamp(0, 1)
            y = (x + (k + 1) / (k + 4) * (x - x_before)).clamp(0, 1)
            logits = view.scores(x)
            hinge = -self._minus_hinge(logits, view.goal)
            succeeded[row] |= view.goal.reached(logits) & (hinge == 0)
            if self.abort_early and k % check_interval(self.steps) == 0:
                loss = c * hinge + elastic_net(self, (x - x0).flatten(1).double())
                going, loss_before = ~stalled(loss, loss_before), loss
                view = view.subset(going)
                row, c, x, y, loss_before = (tensor[going] for tensor in (row, c, x, y, loss_before))
            row, c, x, y, loss_before = view.drop_finished(row, c, x, y, loss_before)
            if not len(row):
                break
        return succeeded

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        return -(goal.margin(logits) + self.kappa).clamp(min=0)
