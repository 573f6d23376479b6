"""Noise: Gaussian, shot (Poisson), impulse."""

from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import stats

from robustassay.data.corruptions.corruption import Corruption, Images
from robustassay.registry import register
from robustassay.rng import Streams


@final
@register("corruption", "gaussian-noise")
@dataclass(frozen=True)
class GaussianNoise(Corruption):
    """Gaussian noise on every value, as in low light."""

    small = (0.04, 0.06, 0.08, 0.09, 0.10)
    large = (0.08, 0.12, 0.18, 0.26, 0.38)

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Add normal numbers."""
        noisy: Images = x + np.float32(setting) * rng.normal(*x.shape[1:]).numpy()
        return noisy


@final
@register("corruption", "shot-noise")
@dataclass(frozen=True)
class ShotNoise(Corruption):
    """Poisson noise: each value is a count of few photons."""

    small = (500, 250, 100, 75, 50)
    large = (60, 25, 12, 5, 3)

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Draw Poisson numbers by inversion, with one distribution per level of brightness."""
        level = np.rint(x * 255)
        at = np.searchsorted(_poisson_steps(setting), level + rng.uniform(*x.shape[1:]).numpy().astype(np.float64))
        counts: Images = (at - level.astype(np.int64) * _most(setting)) / np.float32(setting)
        return counts


def _most(photons: int) -> int:
    """Return a count that even white exceeds with a probability below 1e-18."""
    return int(photons + 9 * np.sqrt(photons) + 30)


@cache
def _poisson_steps(photons: int) -> npt.NDArray[np.float64]:
    """Return the cumulative distributions of all levels, one after the other: level + P(count <= k)."""
    counts, levels = np.arange(_most(photons)), np.arange(256)[:, None]
    reached = stats.poisson.cdf(counts, levels / 255 * photons)
    reached[:, -1] = 1.0
    steps: npt.NDArray[np.float64] = (levels + reached).ravel()
    return steps


@final
@register("corruption", "impulse-noise")
@dataclass(frozen=True)
class ImpulseNoise(Corruption):
    """Some values are replaced by black or white, as by bit errors."""

    small = (0.01, 0.02, 0.03, 0.05, 0.07)
    large = (0.03, 0.06, 0.09, 0.17, 0.27)

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Replace a fraction of the values, half of them by 0 and half by 1."""
        draw = rng.uniform(*x.shape[1:]).numpy()
        lost: Images = np.where(draw < setting / 2, 0, np.where(draw >= 1 - setting / 2, 1, x))
        return lost
