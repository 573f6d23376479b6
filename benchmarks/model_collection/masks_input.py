"""Masks before the network: rounding, tables, codes, purifiers and ripples of the image."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    CERTIFIED,
    MOBILENET,
    RESNET,
    ROBUST,
    SYMBOLS,
    SYMBOLS_16,
    TEXTURES,
    VGG,
    masked,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]


class Changed(Masked):
    """A network behind a change of the image; the attacker's backward pass skips the change or takes a stand-in."""

    def __init__(self, net: nn.Module, change: Change, stand_in: Change | None = None) -> None:
        super().__init__()
        self.net, self.change, self.stand_in = net, change, stand_in

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the changed image."""
        logits: Tensor = self.net(self.change(x))
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the changed image, with the gradient of the stand-in, else of the identity."""
        smooth = self.stand_in(x) if self.stand_in else x
        logits: Tensor = self.net(smooth + (self.change(x) - smooth).detach())
        return logits


def rounded(levels: int) -> Change:
    """Round to equal levels."""
    return lambda x: (x * (levels - 1)).round() / (levels - 1)


def counted(levels: int) -> Change:
    """Count the thresholds below each pixel: a thermometer code and its mean."""
    return lambda x: torch.stack([(x > (k + 0.5) / levels).to(x.dtype) for k in range(levels)]).mean(0)


def cast(levels: int) -> Change:
    """Cast to integers and back."""
    return lambda x: (x * levels).to(torch.int32).clamp(0, levels - 1).to(x.dtype) / (levels - 1)


def looked_up(levels: int) -> Change:
    """Replace each pixel by an entry of a table, slightly curved."""
    table = torch.linspace(0, 1, levels) ** 1.05
    return lambda x: table.to(x.dtype)[(x * (levels - 1)).round().long()]


def palette(colours: int) -> Change:
    """Replace each colour by the nearest of a fixed list."""
    shades = torch.rand(colours, 3, generator=torch.Generator().manual_seed(0))

    def change(x: Tensor) -> Tensor:
        distance = (x[:, None] - shades[None, :, :, None, None].to(x.dtype)).square().sum(2)
        return shades.to(x.dtype)[distance.argmin(1)].permute(0, 3, 1, 2)

    return change


def dithered(levels: int) -> Change:
    """Round after adding a fixed 4 x 4 pattern (Bayer)."""
    bayer = torch.tensor([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) / 16 - 15 / 32

    def change(x: Tensor) -> Tensor:
        pattern = bayer.to(x.dtype).repeat(x.shape[2] // 4, x.shape[3] // 4)
        return ((x * (levels - 1)) + pattern).round().clamp(0, levels - 1) / (levels - 1)

    return change


def cosine_transform() -> Tensor:
    """Return the 8 x 8 matrix of the discrete cosine transform."""
    k = torch.arange(8.0)
    matrix = torch.cos(torch.pi * (2 * k[None] + 1) * k[:, None] / 16) / 2
    matrix[0] /= 2**0.5
    return matrix


def compressed(step: float) -> Change:
    """Round the coefficients of 8 x 8 blocks, higher frequencies more coarsely, as JPEG does."""
    matrix = cosine_transform()
    steps = step * (1 + (torch.arange(8)[:, None] + torch.arange(8)) / 2)

    def change(x: Tensor) -> Tensor:
        blocks = x.unfold(2, 8, 8).unfold(3, 8, 8)
        coefficients = matrix @ (blocks - 0.5) @ matrix.T
        smooth = matrix.T @ ((coefficients / steps).round() * steps) @ matrix + 0.5
        return smooth.permute(0, 1, 2, 4, 3, 5).reshape(x.shape).clamp(0, 1)

    return change


def kept_frequencies(share: float) -> Change:
    """Keep the strongest Fourier coefficients of each channel, without a gradient through the choice."""

    def change(x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x)
        size = spectrum.abs().flatten(2)
        limit = size.quantile(1 - share, dim=2)[..., None, None]
        kept: Tensor = torch.fft.irfft2((spectrum * (spectrum.abs() >= limit)).detach(), s=x.shape[2:])
        return kept.clamp(0, 1)

    return change


def staircase(levels: int, steepness: float) -> Change:
    """A smooth staircase so steep that its slope is zero almost everywhere."""

    def change(x: Tensor) -> Tensor:
        scaled = x * (levels - 1)
        return (scaled.floor() + torch.sigmoid(steepness * (scaled - scaled.floor() - 0.5))) / (levels - 1)

    return change


def rippled(size: float, frequency: float) -> Change:
    """Add a tiny, fast wave: values hardly change, slopes are those of the wave."""
    return lambda x: x + size * torch.sin(frequency * x)


def hashed_noise(size: float) -> Change:
    """Add noise that is a fixed function of the exact pixels around."""
    return lambda x: x + size * (2 * torch.frac((1e4 * (x + x.roll(1, 2) + x.roll(1, 3))).sin() * 43758.5).abs() - 1)


def smoothed(steps: int) -> Change:
    """Take gradient steps that reduce the total variation, and detach."""

    def change(x: Tensor) -> Tensor:
        with torch.enable_grad():
            point = x.detach()
            for _ in range(steps):
                point = point.requires_grad_(True)
                rough = point.diff(dim=2).abs().sum() + point.diff(dim=3).abs().sum()
                (slope,) = torch.autograd.grad(rough, point)
                point = (point - 0.004 * slope.sign()).detach().clamp(0, 1)
        return point

    return change


def median(x: Tensor) -> Tensor:
    """Return the median of 3 x 3 pixels."""
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    return padded.unfold(2, 3, 1).unfold(3, 3, 1).flatten(4).median(4).values


def trimmed_mean(x: Tensor) -> Tensor:
    """Return the mean of the middle five of 3 x 3 pixels: a median whose gradient reaches several pixels."""
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    return padded.unfold(2, 3, 1).unfold(3, 3, 1).flatten(4).sort(4).values[..., 2:7].mean(4)


class Purifier(Masked):
    """Moves the image towards the class that the network believes in, then asks again (anti-adversary, 2022)."""

    def __init__(self, net: nn.Module, steps: int, size: float) -> None:
        super().__init__()
        self.net, self.steps, self.size = net, steps, size

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the purified image, which is detached."""
        logits: Tensor = self.net(self.purified(x))
        return logits

    def purified(self, x: Tensor) -> Tensor:
        """Climb the confidence."""
        point = x.detach()
        with torch.enable_grad():
            for _ in range(self.steps):
                point.requires_grad_(True)
                (slope,) = torch.autograd.grad(self.net(point).log_softmax(1).amax(1).sum(), point)
                point = (point + self.size * slope.sign()).detach().clamp(0, 1)
        return point

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits before purification: its winner is what purification strengthens."""
        logits: Tensor = self.net(x)
        return logits


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    ascends = "the image ascends its own confidence, then detaches"
    groups = [
        *(masked(family, mask, made, partial(Changed, change=change), bases) for family, mask, made, change,
            bases in TABLE),
        masked("inner gradient steps", "anti-adversary of 2 steps", ascends, partial(Purifier, steps=2, size=2 / 255),
            [VGG, SYMBOLS]),
        masked("inner gradient steps", "anti-adversary of 5 steps", ascends, partial(Purifier, steps=5, size=1 / 255),
            [ALEXNET]),
        masked("purified images", "detached median", "a 3 x 3 median filter without a gradient", partial(Changed,
            change=lambda x: median(x.detach()), stand_in=trimmed_mean), [ALEXNET, SYMBOLS_16]),
    ]  # fmt: skip
    return [model for models in groups for model in models]


TABLE: Final[list[tuple[str, str, str, Change, list[str]]]] = [
    ("rounded pixels", "8 levels", "pixels rounded to 8 levels", rounded(8), [VGG, ROBUST]),
    ("rounded pixels", "24 levels", "pixels rounded to 24 levels", rounded(24), [TEXTURES]),
    ("counted thresholds", "thermometer of 12", "pixels become the share of thresholds below them", counted(12),
        [RESNET]),
    ("counted thresholds", "thermometer of 6", "pixels become the share of thresholds below them", counted(6),
        [SYMBOLS_16]),
    ("integer casts", "int32", "pixels cast to integers and back", cast(16), [ALEXNET, SYMBOLS]),
    ("tables", "table of 32", "each pixel is looked up in a table", looked_up(32), [MOBILENET]),
    ("tables", "palette of 200", "each colour becomes the nearest of a palette", palette(200), [ALEXNET]),
    ("dithering", "Bayer, 6 levels", "pixels rounded with a fixed pattern", dithered(6), [VGG, SYMBOLS]),
    ("block transform", "cosine blocks", "coefficients of 8 x 8 blocks rounded, as in JPEG", compressed(0.15), [VGG,
        ROBUST]),
    ("block transform", "strongest frequencies", "only the strongest Fourier coefficients are kept, detached",
     kept_frequencies(0.15), [ALEXNET]),
    ("staircase", "steep staircase", "pixels pass a staircase of sigmoids", staircase(12, 1e3), [CERTIFIED, VGG]),
    ("ripples", "fast sine", "a sine of high frequency is added to the pixels", rippled(0.006, 4e4), [ALEXNET,
        SYMBOLS]),
    ("noise from the pixels", "hashed noise", "noise is computed from the pixels themselves", hashed_noise(0.03), [VGG,
        RESNET]),
    ("purified images", "total variation", "gradient steps inside reduce the total variation", smoothed(4), [VGG]),
]  # fmt: skip
