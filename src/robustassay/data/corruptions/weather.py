"""Weather: snow, frost, fog, brightness.

Frost needs a picture of ice. Hendrycks & Dietterich use six photographs; here the ice is computed, with a scale of
its own, as assay ships no one's pictures: compare accuracies under frost with each other, not with CIFAR-10-C's.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from robustassay.data.corruptions.corruption import Corruption, Images
from robustassay.data.corruptions.filters import Numbers, smear, zoom
from robustassay.registry import register
from robustassay.rng import Streams

ICE = np.array([0.80, 0.92, 1.0], np.float32)
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@final
@register("corruption", "snow")
@dataclass(frozen=True)
class Snow(Corruption):
    """Falling snow, and less contrast.

    The setting is the mean and spread of the flakes, their zoom, the threshold that thins them, the length and fading
    of their fall, and how much of the picture keeps its colour.
    """

    small = (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )
    large = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Blend towards white, and add the flakes twice, once turned around."""
        mean, spread, factor, threshold, radius, sigma, colour = setting
        flakes = np.float32(mean) + np.float32(spread) * rng.normal(1, *x.shape[-2:]).numpy()
        flakes = zoom(flakes, factor) if factor > 1 else flakes
        flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
        flakes = smear(flakes, radius, sigma, rng.uniform(1).double().numpy()[:, 0] * 90 - 135)
        grey = x if x.shape[1] == 1 else np.einsum("nchw,c->nhw", x, LUMA)[:, None]
        pale = np.float32(colour) * x + np.float32(1 - colour) * np.maximum(x, grey * 1.5 + 0.5)
        snowed: Images = pale + flakes + flakes[:, :, ::-1, ::-1]
        return snowed


@final
@register("corruption", "frost")
@dataclass(frozen=True)
class Frost(Corruption):
    """Frost; the setting is the weight of the image and of the ice."""

    small = ((1, 0.2), (1, 0.3), (0.95, 0.4), (0.9, 0.5), (0.85, 0.6))
    large = ((1, 0.4), (0.95, 0.55), (0.9, 0.7), (0.85, 0.85), (0.8, 1.0))

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Add ice: a soft cover with bright lines, where two fractal surfaces cross their mean heights."""
        picture, ice = setting
        height, width = x.shape[-2:]
        cover, *veins = (plasma(rng, height, width, decay) for decay in (2.0, 1.6, 1.3))
        ridges = sum((1 - np.abs(2 * vein - 1)) ** 6 for vein in veins)
        sheet = (0.25 + 0.45 * cover + 0.5 * ridges).clip(0, 1)[:, None].astype(np.float32)
        tint = ICE[:, None, None] if x.shape[1] == 3 else ICE.mean()
        frosted: Images = np.float32(picture) * x + np.float32(ice) * sheet * tint
        return frosted


@final
@register("corruption", "fog")
@dataclass(frozen=True)
class Fog(Corruption):
    """Fog; the setting is its density and the decay of its fractal."""

    small = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))
    large = ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Add fog and rescale the sum, so that the brightest value stays the same."""
        thick, decay = setting
        brightest = x.max((1, 2, 3), keepdims=True)
        fog = plasma(rng, x.shape[2], x.shape[3], decay)[:, None].astype(np.float32)
        foggy: Images = (x + np.float32(thick) * fog) * brightest / (brightest + np.float32(thick))
        return foggy


@final
@register("corruption", "brightness")
@dataclass(frozen=True)
class Brightness(Corruption):
    """More brightness; the setting is added to the value channel of HSV."""

    small = (0.05, 0.1, 0.15, 0.2, 0.3)
    large = (0.1, 0.2, 0.3, 0.4, 0.5)

    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Raise the HSV value of each pixel and keep hue and saturation: all channels are scaled equally."""
        value = x.max(1, keepdims=True)
        raised = np.minimum(value + np.float32(setting), 1)
        bright: Images = np.where(value > 0, x / np.where(value > 0, value, 1), 1) * raised
        return bright


def plasma(rng: Streams, height: int, width: int, decay: float) -> Numbers:
    """Return one fractal surface in [0, 1] per image, by the diamond-square algorithm on a torus."""
    side = 1 << (max(height, width, 2) - 1).bit_length()
    surface = np.zeros((rng.uniform(1).shape[0], side, side))
    step, rough = side, 100.0
    while step >= 2:
        half = step // 2
        corners = surface[:, ::step, ::step]
        across = corners + np.roll(corners, -1, 1)
        middle = (across + np.roll(across, -1, 2)) / 4
        surface[:, half::step, half::step] = middle + _jolt(rng, side // step, rough)
        centres = surface[:, half::step, half::step]
        down = (centres + np.roll(centres, 1, 1) + corners + np.roll(corners, -1, 2)) / 4
        right = (centres + np.roll(centres, 1, 2) + corners + np.roll(corners, -1, 1)) / 4
        surface[:, ::step, half::step] = down + _jolt(rng, side // step, rough)
        surface[:, half::step, ::step] = right + _jolt(rng, side // step, rough)
        step, rough = half, rough / decay
    low, high = surface.min((1, 2), keepdims=True), surface.max((1, 2), keepdims=True)
    whole: Numbers = (surface - low) / (high - low)
    return whole[:, :height, :width]


def _jolt(rng: Streams, count: int, rough: float) -> Numbers:
    """Draw displacements of one level of the diamond-square algorithm."""
    drawn: Numbers = rng.uniform(count, count).double().numpy()
    return rough * rough * (2 * drawn - 1)
