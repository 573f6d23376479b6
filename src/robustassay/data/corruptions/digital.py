"""Digital corruptions: contrast, elastic transform, pixelation, JPEG."""

import io
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from robustassay.data.corruptions.corruption import SMALL_SIDE, Corruption, Images
from robustassay.registry import register
from robustassay.rng import Streams

Bytes = npt.NDArray[np.uint8]

UNIT: Final = 244
"""The image side in the published parameters of the elastic transform; a misprint (244) that became the standard."""


@final
@register("corruption", "contrast")
@dataclass(frozen=True)
class Contrast(Corruption):
    """Less contrast; the setting is the remaining fraction."""

    small = (0.75, 0.5, 0.4, 0.3, 0.15)
    large = (0.4, 0.3, 0.2, 0.1, 0.05)

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Shrink the distance to the mean of each channel."""
        mean = x.mean((2, 3), keepdims=True)
        dull: Images = (x - mean) * np.float32(setting) + mean
        return dull


@final
@register("corruption", "elastic-transform")
@dataclass(frozen=True)
class ElasticTransform(Corruption):
    """Elastic deformation; the setting is the size and smoothness of local moves, and the move of three corners."""

    small = (
        (32 * 0.00, 32 * 0.00, 32 * 0.08),
        (32 * 0.05, 32 * 0.20, 32 * 0.07),
        (32 * 0.08, 32 * 0.06, 32 * 0.06),
        (32 * 0.10, 32 * 0.04, 32 * 0.05),
        (32 * 0.10, 32 * 0.03, 32 * 0.03),
    )
    large = (
        (UNIT * 2, UNIT * 0.7, UNIT * 0.1),
        (UNIT * 2, UNIT * 0.08, UNIT * 0.2),
        (UNIT * 0.05, UNIT * 0.01, UNIT * 0.02),
        (UNIT * 0.07, UNIT * 0.01, UNIT * 0.02),
        (UNIT * 0.12, UNIT * 0.01, UNIT * 0.02),
    )

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Sample each pixel at its position before both moves."""
        local, smooth, corners = setting
        height, width = x.shape[-2:]
        moves = rng.uniform(2, height, width).double().numpy() * 2 - 1
        moves = ndimage.gaussian_filter(moves, smooth, axes=(2, 3), mode="reflect", truncate=3) * local
        places = np.mgrid[:height, :width] + moves
        ones = np.ones((len(x), 1, height, width))
        back = _affine(x, rng.uniform(3, 2).double().numpy() * 2 - 1, corners)
        places = np.einsum("nij,njhw->nihw", back, np.concatenate((places, ones), 1))
        return np.stack([_look_up(image, at) for image, at in zip(x, places, strict=True)])


def _affine(x: Images, moves: npt.NDArray[np.float64], reach: float) -> npt.NDArray[np.float64]:
    """Return, per image, the affine map `[2, 3]` from three moved points back to their original positions."""
    middle, arm = np.array(x.shape[-2:]) // 2, min(x.shape[-2:]) // 3
    before = middle + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    after = np.concatenate((before + reach * moves, np.ones((len(x), 3, 1))), 2)
    return np.linalg.solve(after, np.broadcast_to(before, (len(x), 3, 2))).transpose(0, 2, 1)


def _look_up(image: Images, at: npt.NDArray[np.float64]) -> Images:
    return np.stack([ndimage.map_coordinates(channel, at, order=1, mode="mirror") for channel in image])


@final
@register("corruption", "pixelate")
@dataclass(frozen=True)
class Pixelate(Corruption):
    """Pixelation; the setting is the remaining fraction of each side."""

    small = (0.95, 0.9, 0.85, 0.75, 0.65)
    large = (0.6, 0.5, 0.4, 0.3, 0.25)

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Shrink by averaging, and enlarge again."""
        height, width = x.shape[-2:]
        few = max(1, int(width * setting)), max(1, int(height * setting))
        enlarge = Image.Resampling.BOX if max(height, width) <= SMALL_SIDE else Image.Resampling.NEAREST

        def coarse(channel: Bytes) -> Bytes:
            return np.asarray(
                Image.fromarray(channel).resize(few, Image.Resampling.BOX).resize((width, height), enlarge)
            )

        channels = _as_bytes(x).reshape(-1, height, width)
        return np.stack([coarse(channel) for channel in channels]).reshape(x.shape).astype(np.float32) / 255


@final
@register("corruption", "jpeg-compression")
@dataclass(frozen=True)
class JpegCompression(Corruption):
    """JPEG compression; the setting is the quality."""

    small = (80, 65, 58, 50, 40)
    large = (25, 18, 15, 10, 7)

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Encode and decode each image."""
        corrupted = [_through_jpeg(image, setting) for image in _as_bytes(x).transpose(0, 2, 3, 1)]
        return np.stack(corrupted).transpose(0, 3, 1, 2).astype(np.float32) / 255


def _through_jpeg(image: Bytes, quality: int) -> Bytes:
    file = io.BytesIO()
    Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image).save(file, "JPEG", quality=quality)
    with Image.open(file) as read:
        return np.asarray(read).reshape(image.shape)


def _as_bytes(x: Images) -> Bytes:
    return np.rint(x * 255).astype(np.uint8)
