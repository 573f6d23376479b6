"""Boundary attack."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.boundary_search import start_on_boundary, unit
from robustassay.attacks.common.drawn_ahead import DrawnAhead
from robustassay.attacks.common.oracle import Oracle
from robustassay.registry import register
from robustassay.target import DecisionAccess
from robustassay.threat import L2, per_row, where_rows


@final
@register("attack", "boundary")
@dataclass(frozen=True)
class Boundary(Attack[DecisionAccess]):
    """A random walk along the boundary (Brendel et al. 2018, arXiv:1712.04248).

    Each step moves on a sphere around the clean image and then a little towards it, and is kept if the goal is still
    reached. The step lengths adapt per row to the success rate: one step in `check_every` is counted, and lengths
    change once a window is full. The start is moved to the boundary first.
    """

    info = AttackInfo(
        papers=("1712.04248",),
        formula="x' = a random turn of x around x0 by `around`, then a part `towards` of the way to x0\n"
        "keep x' if it reaches the goal; both lengths adapt to how often that happens",
        reference="foolbox, ARES",
    )
    access = DecisionAccess
    norms = (L2,)
    seeks_minimum = True

    queries: int = 20_000
    around: float = 0.01
    """First length of a step on the sphere, as a part of the distance to the clean image."""
    towards: float = 0.01
    """First length of a step towards the clean image, as a part of the distance to it."""
    adaptation: float = 1.5
    """Factor by which step lengths grow or shrink."""
    check_every: int = 3
    """One step in so many is counted for the success rate on the sphere."""
    window_around: int = 10
    """Counted steps on the sphere before its step length may change."""
    window_towards: int = 5
    """Counted steps towards the clean image before their length may change."""
    converged: float = 1e-7
    """The walk ends once steps towards the clean image are shorter than this."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Propose, query, keep what reaches the goal."""
        oracle = Oracle.of(view, self.queries)
        x = start_on_boundary(oracle, 1e-3)
        rates = torch.tensor([self.around, self.towards], device=x.device).repeat(len(x), 1)
        tally = torch.zeros(len(x), 4, device=x.device)
        windows = tally.new_tensor([self.window_around, self.window_towards])
        ahead = DrawnAhead(lambda rng: (rng.normal(*x0.shape[1:]),), x0[0].numel())
        step = 0
        while len(x):
            sphere, point = _propose(view, x, rates, *ahead.next(view.rng))
            if step % self.check_every:
                hit = oracle.reaches(point)
            else:
                on_sphere, hit = oracle.reaches(torch.stack((sphere, point), 1)).unbind(1)
                rates, tally = self._adapt(rates, tally, windows, on_sphere, hit)
            x = where_rows(hit, point, x)
            if not step % self.check_every:  # lengths change in counted steps only
                view.mark_finished(rates[:, 1] < self.converged)
            x, rates, tally, *ahead.drawn = oracle.drop_finished(x, rates, tally, *ahead.drawn)
            step += 1
        return x

    def _adapt(
        self, rates: Tensor, tally: Tensor, windows: Tensor, on_sphere: Tensor, hit: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Count outcomes; where a window is full, lengthen the steps if most succeeded and shorten them if few did.

        `tally` holds, for the sphere and for the step towards the clean image, the number of trials and of successes.
        Steps towards the clean image count only where the point on the sphere succeeded.
        """
        tally = tally + torch.stack((torch.ones_like(hit), on_sphere, on_sphere, on_sphere & hit), 1)
        share = tally[:, 1::2] / tally[:, ::2].clamp(min=1)
        full = tally[:, ::2] >= windows
        longer, shorter = full & (share > 0.5), full & (share < 0.2)
        change = torch.where(longer, self.adaptation, torch.where(shorter, 1 / self.adaptation, 1.0))
        rates = torch.stack((rates[:, 0] * change[:, 0], rates[:, 1] * change[:, 0] * change[:, 1]), 1)
        return rates, tally * (~full).repeat_interleave(2, 1)


def _propose(view: DecisionAccess, x: Tensor, rates: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Move on the sphere in a random direction, then towards the clean image, both clipped to the box."""
    centre, around, towards = view.ball.centre, per_row(rates[:, 0], x), per_row(rates[:, 1], x)
    source = centre - x
    size = _length(source)
    ahead = unit(source)
    noise = noise - per_row((noise * ahead).flatten(1).sum(1), x) * ahead
    turn = unit(noise) * around * size
    sphere = (centre + (turn - source) / (1 + around.square()).sqrt()).clamp(0, 1)
    ahead = centre - sphere
    reach = _length(ahead)
    gain = (towards * size + reach - size).clamp(min=0)  # corrects the distance that clipping changed
    return sphere, (sphere + gain / reach.clamp(min=1e-12) * ahead).clamp(0, 1)


def _length(x: Tensor) -> Tensor:
    return per_row(x.flatten(1).square().sum(1).sqrt(), x)
