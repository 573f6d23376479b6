"""Carlini and Wagner's L2 attack (2017, arXiv:1608.04644): the authors' two nested loops."""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common import adam
from robustassay.attacks.common.penalty_search import PenaltySearch, check_interval, stalled
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L2, Goal, per_row

INSIDE: Final = 1 - 1e-6
"""The authors' factor that keeps pixels off 0 and 1, where the tanh is flat."""


@final
@register("attack", "cw")
@dataclass(frozen=True)
class CW(Attack[GradientAccess]):
    """Minimises |x - x0|^2 + c * hinge over w, x = (1 + tanh w) / 2 (Carlini & Wagner 2017, arXiv:1608.04644).

    The outer loop searches for c, the inner loop is Adam from the clean image. The hinge is max(margin + kappa, 0);
    only points that are misclassified by a margin of `kappa` count. The defaults are those of the authors' code.
    Unlike there, each row decides by itself when to stop early, so that results do not depend on the batch. The last
    of ten or more searches does not repeat the largest c. `cw-fast` reaches the same distances with fewer gradients.
    """

    info = AttackInfo(
        papers=("1608.04644",),
        formula="minimise |x - x0|_2^2 + c * max(m(x) + kappa, 0) over w, x = (1 + tanh w) / 2, by Adam;\n"
        "search c: ten times larger until it succeeds, then by bisection",
        reference="carlini/nn_robust_attacks, adv-lib",
    )
    access = GradientAccess
    norms = (L2,)
    seeks_minimum = True

    search_steps: int = 9
    steps: int = 10_000
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
        w = ((2 * view.ball.centre.double() - 1) * INSIDE).atanh()  # a float32 tanh depends on the size of the batch
        mean = square = torch.zeros_like(view.ball.centre)
        loss_before = torch.full_like(c, torch.inf)
        for k in range(1, self.steps + 1):
            tanh = w.tanh()
            x = ((1 + tanh) / 2).float()
            gradient, logits = view.gradient(x, self._minus_hinge)
            hinge = -self._minus_hinge(logits, view.goal)
            succeeded[row] |= view.goal.reached(logits) & (hinge == 0)
            loss = view.ball.distance(x).square() + c * hinge
            gradient_x = 2 * (x - view.ball.centre) - per_row(c.float(), x) * gradient
            mean, square = adam.update_moments(mean, square, gradient_x * ((1 - tanh.square()) / 2).float())
            w = w - self.rate * adam.direction(mean, square, k)
            if self.abort_early and (k - 1) % check_interval(self.steps) == 0:
                going, loss_before = ~stalled(loss, loss_before), loss
                view = view.subset(going)
                row, c, w, mean, square, loss_before = (t[going] for t in (row, c, w, mean, square, loss_before))
            row, c, w, mean, square, loss_before = view.drop_finished(row, c, w, mean, square, loss_before)
            if not len(row):
                break
        return succeeded

    def _minus_hinge(self, logits: Tensor, goal: Goal) -> Tensor:
        return -(goal.margin(logits) + self.kappa).clamp(min=0)
