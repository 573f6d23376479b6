"""RayS."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.boundary_search import ATTEMPTS, bisect, candidate
from robustassay.attacks.common.oracle import Oracle
from robustassay.registry import register
from robustassay.target import DecisionAccess
from robustassay.threat import LInf, per_row, where_rows

RADII: Final = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Radii at which a first direction is tried: a class may be reached near the image and not at the corner."""


@final
@register("attack", "rays")
@dataclass(frozen=True)
class RayS(Attack[DecisionAccess]):
    """Searches the sign vector of the nearest ray by flipping ever smaller blocks (Chen & Gu 2020, arXiv:2006.12792).

    A flip costs one query, at the best radius so far; only where it still reaches the goal is the new radius searched
    for, to `tolerance`. The first ray is all ones as in the paper; where that reaches nothing, rays towards noise and
    towards images of the data are tried.
    """

    info = AttackInfo(
        papers=("2006.12792",),
        formula="s: a vector of signs;  d(s): least r at which x0 + r * s reaches the goal\n"
        "flip ever smaller blocks of s; keep a flip if the goal is still reached at d(s); then bisect for its d",
    )
    access = DecisionAccess
    norms = (LInf,)
    seeks_minimum = True

    queries: int = 20_000
    tolerance: float = 2e-5
    """Precision of the radius of a ray."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Flip a block, query, bisect where it helps."""
        oracle = Oracle.of(view, self.queries)
        signs, radius = _first_ray(oracle)
        radius = self._search(oracle, signs, radius)
        blocks = _blocks(signs[0].numel() if len(signs) else 1)
        while len(signs):
            block = next(blocks)
            attempt = _flipped(view, signs, block)
            nearer = oracle.reaches(_at(view, attempt, radius))
            signs = where_rows(nearer, attempt, signs)
            if nearer.any():
                radius[nearer] = self._search(oracle.subset(nearer), signs[nearer], radius[nearer])
            signs, radius = oracle.drop_finished(signs, radius)
        return signs

    def _search(self, oracle: Oracle, signs: Tensor, radius: Tensor) -> Tensor:
        def path(r: Tensor) -> Tensor:
            return _at(oracle.view, signs, r)

        return bisect(oracle, path, torch.zeros_like(radius), radius, self.tolerance)


def _first_ray(oracle: Oracle) -> tuple[Tensor, Tensor]:
    """Find signs, and the smallest of some radii, that reach the goal; rows without one are finished."""
    view, radii = oracle.view, oracle.view.ball.centre.new_tensor(RADII).double()
    signs = torch.ones_like(view.ball.centre)
    radius = torch.full((len(signs),), torch.inf, dtype=torch.float64, device=signs.device)
    for attempt in range(ATTEMPTS):
        searching = (radius == torch.inf) & (oracle.left > 0)
        if not searching.any():
            break
        some = oracle.subset(searching)
        centre = some.view.ball.centre
        ray = torch.ones_like(centre) if attempt == 0 else (candidate(some.view, attempt - 1) - centre).sign()
        points = centre[:, None] + per_row(radii.to(ray.dtype)[None], ray[:, None]) * ray[:, None]
        hit = some.reaches(points)
        signs[searching] = ray
        radius[searching] = torch.where(hit, radii, torch.inf).amin(1)
    view.mark_finished(radius == torch.inf)
    signs, radius = oracle.drop_finished(signs, radius)
    return signs, radius


def _flipped(view: DecisionAccess, signs: Tensor, block: slice) -> Tensor:
    """Flip the signs of a block; zeros of the first ray get random signs."""
    flat = signs.flatten(1)
    chance = view.rng.rademacher(flat[0, block].numel())
    flipped = flat.clone()
    flipped[:, block] = torch.where(flat[:, block] == 0, chance, -flat[:, block])
    return flipped.view_as(signs)


def _at(view: DecisionAccess, signs: Tensor, radius: Tensor) -> Tensor:
    return (view.ball.centre + per_row(radius.to(signs.dtype), signs) * signs).clamp(0, 1)


def _blocks(values: int) -> Iterator[slice]:
    """Yield 1, 2, 4, ... blocks; once each block is a single value, repeat these."""
    count = 1
    while True:
        size = -(-values // count)
        for start in range(0, values, size):
            yield slice(start, start + size)
        count = min(2 * count, values)
