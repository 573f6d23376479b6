"""GeoDA."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.boundary_search import (
    AT_ONCE,
    Path,
    at_distance,
    bisect,
    onto_boundary,
    start_on_boundary,
)
from robustassay.attacks.common.oracle import Oracle
from robustassay.registry import register
from robustassay.rng import Streams
from robustassay.target import DecisionAccess
from robustassay.threat import L2, LInf, per_row, where_rows

FIRST: Final = 50
"""Probes of the first normal, at least; the number of normals follows from it."""
SEARCH: Final = 25
"""Queries set aside for each way back to the boundary."""
EXPANSIONS: Final = 8
"""A normal that meets no boundary at so many times half as far again is not followed."""


@final
@register("attack", "geoda")
@dataclass(frozen=True)
class GeoDA(Attack[DecisionAccess]):
    """Approximates the boundary by a plane and moves along its normal (Rahmati et al. 2020, arXiv:2003.06468).

    The normal is estimated on the boundary from labels of low-frequency noise, with `frequencies` per side, and added
    to the normals before; the next point is where the ray from the clean image along it meets the boundary. Later
    normals get more probes, by `ratio` to the power -2/3.
    """

    info = AttackInfo(
        papers=("2003.06468",),
        formula="n <- n + normal of the boundary at x, from labels of low-frequency noise\n"
        "x <- where the ray from x0 along n (along sign(n) under L∞) meets the boundary",
    )
    access = DecisionAccess
    norms = (L2, LInf)
    seeks_minimum = True

    queries: int = 20_000
    frequencies: int = 10
    """Frequencies of the noise per side of the image."""
    ratio: float = 0.6
    """The number of probes grows by this number to the power -2/3 from one normal to the next."""
    sigma: float = 0.002
    """Size of the noise around a point of the boundary."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Estimate the normal at the boundary, and follow it from the clean image."""
        oracle = Oracle.of(view, self.queries)
        x = start_on_boundary(oracle, 1e-3)
        x = onto_boundary(oracle, x, self._precision(view, x))
        normal = torch.zeros_like(x)
        plan = view.track(oracle.left)
        turn = 0
        while len(x):
            probes = self._probes(plan(), turn)
            normal = normal + self._estimate(oracle, x, probes)
            x = self._follow_normal(oracle, x, normal)
            x, normal = oracle.drop_finished(x, normal)
            turn += 1
        return x

    def _estimate(self, oracle: Oracle, x: Tensor, probes: Tensor) -> Tensor:
        """Estimate the normal from labels of points around x, less their mean."""
        votes, steps, yes = torch.zeros_like(x), torch.zeros_like(x), x.new_zeros(len(x))
        done = 0
        while (asking := probes > done).any():
            some = oracle.subset(asking)
            noise = _smooth_noise(some.view.rng, x, self.frequencies)
            hit = some.reaches(x[asking][:, None] + self.sigma * noise)
            votes[asking] += (noise * per_row(hit, noise)).sum(1)
            steps[asking] += noise.sum(1)
            yes[asking] += hit.sum(1)
            done += AT_ONCE
        share = yes / probes.clamp(min=1)
        return (votes - per_row(share, x) * steps) / per_row(probes, x)

    def _follow_normal(self, oracle: Oracle, x: Tensor, normal: Tensor) -> Tensor:
        """Follow the normal from the clean image to the boundary, even if that is farther away than before."""
        view, distance = oracle.view, oracle.view.ball.distance(x)
        path = _ray(view, normal)
        low, high = torch.zeros_like(distance), distance
        missing = torch.ones_like(distance, dtype=torch.bool)
        for _ in range(EXPANSIONS):
            hit = torch.zeros_like(missing)
            hit[missing] = oracle.subset(missing).reaches(path(high)[missing])
            missing = missing & ~hit & (oracle.left > 0)
            if not missing.any():
                break
            low, high = torch.where(missing, high, low), torch.where(missing, high * 1.5, high)
        nearest = bisect(oracle, path, torch.where(missing, high, low), high, self._precision(view, x) * distance)
        return where_rows(missing, x, path(nearest))

    def _precision(self, view: DecisionAccess, x: Tensor) -> Tensor:
        """The relative precision on the boundary that probes of this size need."""
        length = L2(1).size((x - view.ball.centre).flatten(1))
        return self.sigma / 5 / length.clamp(min=self.sigma)

    def _probes(self, left: Tensor, turn: int) -> Tensor:
        """Return the probes of each row's normal in this turn, in whole calls."""
        counts = [_plan(budget, self.ratio)[turn:][:1] or (FIRST,) for budget in left.tolist()]
        return torch.tensor(counts, device=left.device).view(-1)


@lru_cache(maxsize=1024)
def _plan(queries: int, ratio: float) -> tuple[int, ...]:
    """Divide queries into growing shares; the first is the smallest that is large enough."""
    growth = max(ratio, 1e-3) ** (-2 / 3)
    turns, shares = 1, [float(queries - SEARCH)]
    while True:
        weights = [growth**turn for turn in range(turns + 1)]
        wider = [(queries - SEARCH * (turns + 1)) * weight / sum(weights) for weight in weights]
        if wider[0] < FIRST:
            return tuple(AT_ONCE * max(1, round(share / AT_ONCE)) for share in shares)
        turns, shares = turns + 1, wider


def _ray(view: DecisionAccess, normal: Tensor) -> Path:
    """Return the path that gains most along the normal for its length, inside the box."""
    if isinstance(view.ball.norm, LInf):
        signs = normal.sign()
        return lambda distance: (view.ball.centre + per_row(distance.to(signs.dtype), signs) * signs).clamp(0, 1)
    return lambda distance: at_distance(view, normal, distance)


def _smooth_noise(rng: Streams, like: Tensor, frequencies: int) -> Tensor:
    """Draw noise `[rows, q, *image]` made of the lowest frequencies of each channel."""
    *channels, height, width = (1, 1, *like.shape[1:])
    down, across = (_cosines(side, frequencies).to(like) for side in (height, width))
    weights = rng.normal(AT_ONCE, math.prod(channels), len(down), len(across))
    # Sums over frequencies are spelled out: a matrix product may round differently in a larger batch.
    rows = sum(weights[..., k, None] * across[k] for k in range(len(across)))
    assert isinstance(rows, Tensor)
    noise = sum(rows[..., k, None, :] * down[k][:, None] for k in range(len(down)))
    assert isinstance(noise, Tensor)
    return noise.reshape(len(noise), AT_ONCE, *like.shape[1:])


@lru_cache(maxsize=64)
def _cosines(values: int, frequencies: int) -> Tensor:
    """Return the first waves of the discrete cosine transform, each of length one."""
    k, i = torch.arange(min(frequencies, values))[:, None], torch.arange(values)
    waves = torch.cos(math.pi * k * (2 * i + 1) / (2 * values))
    return waves / waves.square().sum(1, keepdim=True).sqrt()
