"""Filters that several corruptions use."""

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from robustassay.data.corruptions.corruption import Images

Numbers = npt.NDArray[np.float64]

GAUSSIAN_REACH: Final = 4.0
"""Truncation of a Gaussian, in standard deviations."""


def gaussian_blur(x: Images, sigma: float) -> Images:
    """Blur each image."""
    blurred: Images = ndimage.gaussian_filter(x, sigma, axes=(-2, -1), mode="nearest", truncate=GAUSSIAN_REACH)
    return blurred


def smear(x: Images, radius: int, sigma: float, degrees: Numbers) -> Images:
    """Blur along a line, one angle per image: a weighted sum of shifted copies with the weights of half a Gaussian."""
    n, _, height, width = x.shape
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    down, right = np.sin(np.deg2rad(degrees)), np.cos(np.deg2rad(degrees))
    images = np.arange(n)[:, None, None]
    total = np.zeros_like(x)
    for step, weight in enumerate(weights):
        # Edge pixels are repeated beyond the edge.
        rows = np.clip(np.arange(height) + _whole(step * down)[:, None], 0, height - 1)
        columns = np.clip(np.arange(width) + _whole(step * right)[:, None], 0, width - 1)
        moved = x[images, :, rows[:, :, None], columns[:, None, :]]  # [n, height, width, channels]
        total += np.float32(weight) * moved.transpose(0, 3, 1, 2)
    return total


def _whole(moves: Numbers) -> npt.NDArray[np.int64]:
    return np.ceil(moves - 0.5).astype(np.int64)


def zoom(x: Images, factor: float) -> Images:
    """Enlarge the centre of each image to the full size, linearly."""
    zoomed: Images = _stretch(x.shape[-2], factor) @ x @ _stretch(x.shape[-1], factor).T
    return zoomed


@cache
def _stretch(side: int, factor: float) -> npt.NDArray[np.float32]:
    """Return the matrix that zooms one side: zooming is linear, so the zoomed unit matrix is that matrix."""
    kept = int(np.ceil(side / factor))
    first = (side - kept) // 2
    larger = ndimage.zoom(np.eye(kept, side, first).T[first : first + kept], (factor, 1), order=1)
    cut = (len(larger) - side) // 2
    matrix = np.zeros((side, side), np.float32)
    matrix[:, first : first + kept] = larger[cut : cut + side]
    return matrix
