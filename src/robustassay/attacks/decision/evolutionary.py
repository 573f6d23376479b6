"""Evolutionary attack."""

import math
from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.boundary_search import start_on_boundary, unit
from robustassay.attacks.common.drawn_ahead import DrawnAhead
from robustassay.attacks.common.oracle import Oracle
from robustassay.registry import register
from robustassay.rng import Streams
from robustassay.target import DecisionAccess
from robustassay.threat import L2, per_row, where_rows

TRIALS: Final = 30
"""Trials between two changes of mu."""
SHARE: Final = 20
"""One value in so many is changed in a trial."""


@final
@register("attack", "evolutionary")
@dataclass(frozen=True)
class Evolutionary(Attack[DecisionAccess]):
    """An evolution strategy that learns which values matter (Dong et al. 2019, arXiv:1904.04433).

    Each trial moves a part `mu` of the way towards the clean image and mutates few values, drawn by a diagonal
    covariance that adapts to past successes, on the sphere of the new distance. With `coarse` above 1, it searches
    images that are smaller by this factor on each side, and enlarges them.
    """

    info = AttackInfo(
        papers=("1904.04433",),
        formula="x' = on the sphere of radius (1 - mu) * |x - x0|: x + z, z normal with variances C on few values\n"
        "keep x' if it reaches the goal; then path <- decay * path + z, C <- (1 - c) * C + c * path^2",
        reference="ARES",
    )
    access = DecisionAccess
    norms = (L2,)
    seeks_minimum = True

    queries: int = 20_000
    mu: float = 0.01
    """First part of the way to the clean image that a trial moves; it adapts."""
    sigma: float = 0.03
    """Size of a mutation, as a part of the distance to the clean image."""
    path_decay: float = 0.99
    """Part of the evolution path that is kept at a success."""
    covariance_rate: float = 0.001
    """Learning rate of the covariance."""
    coarse: int = 1
    """Factor by which the searched image is smaller on each side."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Mutate, query, adapt to what reaches the goal."""
        oracle = Oracle.of(view, self.queries)
        x = start_on_boundary(oracle, 1e-3)
        grid = _grid(x.shape[1:], self.coarse)
        values = math.prod(grid)
        path, covariance = x.new_zeros(len(x), values), x.new_ones(len(x), values)
        mu, good = x.new_full((len(x),), self.mu), x.new_zeros(len(x))
        ahead = DrawnAhead(lambda rng: _numbers(rng, values), values, draws=2)
        trial = 0
        while len(x):
            z = _mutation(covariance, *ahead.next(view.rng))
            point = self._towards(view, x, _enlarge(z.view(-1, *grid), x.shape[1:]), mu)
            hit = oracle.reaches(point)
            x = where_rows(hit, point, x)
            new_path = self.path_decay * path + math.sqrt(1 - self.path_decay**2) * z
            path = torch.where(hit[:, None], new_path, path)
            spread = (1 - self.covariance_rate) * covariance + self.covariance_rate * path.square()
            covariance = torch.where(hit[:, None], spread, covariance)
            good, trial = good + hit, trial + 1
            if trial % TRIALS == 0:
                mu, good = mu * (good / TRIALS - 0.2).exp(), torch.zeros_like(good)
            x, path, covariance, mu, good, *ahead.drawn = oracle.drop_finished(
                x, path, covariance, mu, good, *ahead.drawn
            )
        return x

    def _towards(self, view: DecisionAccess, x: Tensor, z: Tensor, mu: Tensor) -> Tensor:
        """Move towards the clean image and mutate on the sphere of that distance."""
        centre, delta = view.ball.centre, x - view.ball.centre
        size = per_row(delta.flatten(1).square().sum(1).sqrt(), x)
        part = 1 - per_row(mu.clamp(max=0.5), x)
        return (centre + unit(part * delta + self.sigma * size * unit(z)) * part * size).clamp(0, 1)


def _numbers(rng: Streams, values: int) -> tuple[Tensor, Tensor]:
    """Draw what chooses the values, and what changes them."""
    return -(-rng.uniform(values).clamp(min=1e-12).log()).log(), rng.normal(values)


def _mutation(covariance: Tensor, gumbel: Tensor, normal: Tensor) -> Tensor:
    """Return normals on few values, chosen without replacement in proportion to their variance (Gumbel's top k)."""
    values = covariance.shape[1]
    chosen = (covariance.log() + gumbel).topk(max(1, values // SHARE), 1).indices
    mask = torch.zeros_like(covariance).scatter_(1, chosen, 1.0)
    return normal * covariance.sqrt() * mask


def _grid(image: torch.Size, coarse: int) -> tuple[int, ...]:
    """Shape of the images that are searched."""
    if coarse == 1:
        return tuple(image)
    *channels, height, width = (1, 1, *image)
    return (math.prod(channels), max(1, height // coarse), max(1, width // coarse))


def _enlarge(z: Tensor, image: torch.Size) -> Tensor:
    if z.shape[1:] == image:
        return z
    height, width = (1, *image)[-2:]
    return F.interpolate(z, (height, width), mode="bilinear").reshape(len(z), *image)
