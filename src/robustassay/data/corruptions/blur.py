"""Blur: defocus, glass, motion, zoom."""

from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
from scipy import ndimage

from robustassay.data.corruptions.corruption import Corruption, Images
from robustassay.data.corruptions.filters import gaussian_blur, smear, zoom
from robustassay.registry import register
from robustassay.rng import Streams


@final
@register("corruption", "defocus-blur")
@dataclass(frozen=True)
class DefocusBlur(Corruption):
    """Each point becomes a disk; the setting is its radius and the softness of its edge."""

    small = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
    large = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Convolve with the disk."""
        blurred: Images = ndimage.correlate(x, _disk(*setting)[None, None], mode="mirror")
        return blurred


@cache
def _disk(radius: float, edge: float) -> Images:
    reach = int(np.ceil(radius)) + 2
    places = np.arange(-reach, reach + 1)
    inside = np.hypot(places, places[:, None]) <= radius
    taps = np.arange(-2, 3) if radius > 8 else np.arange(-1, 2)
    soft = np.exp(-(taps**2) / (2 * edge**2))
    soft /= soft.sum()
    disk: Images = ndimage.convolve1d(ndimage.convolve1d(inside / inside.sum(), soft, 0), soft, 1)
    return disk.astype(np.float32)


@final
@register("corruption", "glass-blur")
@dataclass(frozen=True)
class GlassBlur(Corruption):
    """Pixels are exchanged with neighbours, as behind frosted glass; the setting is blur, distance and rounds.

    The paper speaks of swapping pixels. The program that made CIFAR-10-C and ImageNet-C copies one over the other,
    which corrupts far less, and it is their numbers that others compare with: so does this.
    """

    small = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
    large = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Blur, shuffle, blur; images do not depend on each other."""
        sigma, reach, rounds = setting
        shuffled = gaussian_blur(x, sigma)
        n, _, height, width = x.shape
        images = np.arange(n)
        for _ in range(rounds):
            moves = (rng.integers(2 * reach, height, width, 2) - reach).numpy()
            for row in range(height - reach, reach, -1):
                for column in range(width - reach, reach, -1):
                    near = row + moves[:, row, column, 0], column + moves[:, row, column, 1]
                    shuffled[:, :, row, column] = shuffled[images, :, *near]
        return gaussian_blur(shuffled, sigma)


@final
@register("corruption", "motion-blur")
@dataclass(frozen=True)
class MotionBlur(Corruption):
    """Motion along a line; the setting is its length and the deviation of its weights."""

    small = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))
    large = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Blur along a line within 45 degrees of the horizontal."""
        radius, sigma = setting
        return smear(x, radius, sigma, rng.uniform(1).double().numpy()[:, 0] * 90 - 45)


@final
@register("corruption", "zoom-blur")
@dataclass(frozen=True)
class ZoomBlur(Corruption):
    """Zoom during the exposure; the setting is the final zoom and the number of steps."""

    small = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))
    large = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.33, 0.03))

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Average the image with its zooms."""
        end, step = setting
        factors = np.arange(1, end, step)
        total = x.copy()
        for factor in factors:
            total += zoom(x, float(factor))
        return total / np.float32(len(factors) + 1)
