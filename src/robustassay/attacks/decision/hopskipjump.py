"""HopSkipJump."""

import math
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.boundary_search import AT_ONCE, onto_boundary, start_on_boundary, unit
from robustassay.attacks.common.oracle import Oracle
from robustassay.registry import register
from robustassay.target import DecisionAccess
from robustassay.threat import L2, LInf, per_row, where_rows

HALVINGS: Final = 20
"""A leap that reaches nothing at a millionth of its length is not taken."""
SHORTEST: Final = 0.01
"""Probes reach the paper's 1/d of the way to the clean image, but never less than this part of it: shorter ones are
lost in float32 under L∞, ask for a costlier search of the boundary, and end so near to it that rounding decides."""
FIRST: Final = 0.1
"""Length of the probes at the start, which is only roughly on the boundary."""


@final
@register("attack", "hopskipjump")
@dataclass(frozen=True)
class HopSkipJump(Attack[DecisionAccess]):
    """Moves along the boundary by gradients estimated from labels (Chen et al. 2020, arXiv:1904.02144).

    From a point on the boundary: estimate the normal from `probes` labels, more each time; step along it; and bisect
    back to the boundary towards the clean image, as precisely as probes of this length need. Under L∞ the sign of the
    normal is used.
    """

    info = AttackInfo(
        papers=("1904.02144",),
        formula="n = unit(mean over u of (h(x + r * u) - mean h) * u), h = 1 where the goal is reached\n"
        "x <- bisect towards x0 from x + a * n, a = |x - x0| / sqrt(k), halved until it reaches the goal",
    )
    access = DecisionAccess
    norms = (L2, LInf)
    seeks_minimum = True

    queries: int = 20_000
    probes: int = 100
    """Labels that the first normal is estimated from; later ones take more."""
    max_probes: int = 10_000
    """Labels that one normal is estimated from, at most."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Estimate the normal, step along it, and bisect back to the boundary."""
        oracle = Oracle.of(view, self.queries)
        values = x0[0].numel()
        reach = max(1 / values, SHORTEST)
        tolerance = reach / math.sqrt(values)
        x = start_on_boundary(oracle, 1e-3)
        radius = torch.full((len(x),), FIRST, device=x.device)
        hop = 1
        while len(x):
            probes = min(int(self.probes * math.sqrt(hop)), self.max_probes)
            direction = _normal(oracle, x, radius, probes)
            far = _step_along(oracle, x, direction, view.ball.distance(x) / math.sqrt(hop))
            x = onto_boundary(oracle, far, tolerance)
            radius = reach * L2(1).size((x - view.ball.centre).flatten(1)).to(x.dtype)
            x, radius = oracle.drop_finished(x, radius)
            hop += 1
        return x


def _normal(oracle: Oracle, x: Tensor, radius: Tensor, probes: int) -> Tensor:
    """Estimate the direction in which the goal lies, from the labels of points around x.

    The mean of the answers is subtracted; otherwise a point slightly beyond the boundary gives no information.
    """
    view = oracle.view
    votes, steps, yes = torch.zeros_like(x), torch.zeros_like(x), radius.new_zeros(len(x))
    size = per_row(radius[:, None], x[:, None])
    probed = 0
    while probed < probes:
        n = min(AT_ONCE, probes - probed)
        if isinstance(view.ball.norm, LInf):
            noise = view.rng.uniform(n, *x.shape[1:]) * 2 - 1
        else:
            noise = view.rng.normal(n, *x.shape[1:])
        points = (x[:, None] + size * unit(noise, 2)).clamp(0, 1)
        step = (points - x[:, None]) / size
        hit = oracle.reaches(points)
        votes += (step * per_row(hit, step)).sum(1)
        steps += step.sum(1)
        yes += hit.sum(1)
        probed += n
    share = yes / probed
    one_sided = (share == 0) | (share == 1)
    normal = where_rows(one_sided, steps * per_row(2 * share - 1, x), votes - per_row(share, x) * steps)
    return normal.sign() if isinstance(view.ball.norm, LInf) else unit(normal)


def _step_along(oracle: Oracle, x: Tensor, direction: Tensor, length: Tensor) -> Tensor:
    """Step along the direction, halving the step until the goal is reached; stay where no step reaches it."""
    reached, missing = x, torch.ones(len(x), dtype=torch.bool, device=x.device)
    for _ in range(HALVINGS):
        points = (x + per_row(length.to(x.dtype), x) * direction).clamp(0, 1)
        hit = torch.zeros_like(missing)
        hit[missing] = oracle.subset(missing).reaches(points[missing])
        reached = where_rows(hit, points, reached)
        length, missing = length / 2, missing & ~hit & (oracle.left > 0)
        if not missing.any():
            break
    return reached
