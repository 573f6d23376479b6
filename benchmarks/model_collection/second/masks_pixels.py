"""Masks before the network: wavelets, ranks, code books, phases, alignment, random rounding, detectors."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    MOBILENET,
    SPOTS,
    SYMBOLS,
    SYMBOLS_11,
    TEXTURES,
    VGG,
    WAVES,
    masked,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.masks_input import Changed
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]


def haar(x: Tensor) -> Tensor:
    """Return the four bands of one level of the Haar transform, stacked before the channels."""
    a, b, c, d = x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2]
    return torch.stack((a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d), 1) / 2


def from_haar(bands: Tensor) -> Tensor:
    """Return the image of its four bands."""
    s, h, v, d = bands.unbind(1)
    top = torch.stack((s + h + v + d, s - h + v - d), -1).flatten(-2)
    bottom = torch.stack((s + h - v - d, s - h - v + d), -1).flatten(-2)
    return torch.stack((top, bottom), -2).flatten(-3, -2) / 2


def shrunk(limit: float, size: float) -> Change:
    """Zero the small wavelet coefficients and round the others."""

    def change(x: Tensor) -> Tensor:
        bands = haar(x)
        rounded = (bands / size).round() * size
        keep = (bands.abs() >= limit) | (torch.arange(4).view(1, 4, 1, 1, 1) == 0)
        return from_haar(rounded * keep).clamp(0, 1)

    return change


def equalised(x: Tensor) -> Tensor:
    """Replace each pixel by its rank in the channel, mixed with the mean and contrast of the channel."""
    flat = x.flatten(2)
    place = flat.argsort(2).argsort(2).to(x) / (flat.shape[2] - 1) - 0.5
    with torch.no_grad():
        mean, contrast = flat.mean(2, keepdim=True), flat.std(2, keepdim=True)
    return (mean + 12**0.5 * contrast * place).view_as(x).clamp(0, 1)


@lru_cache
def code_book(images: str, size: int, count: int) -> Change:
    """Replace each square of pixels by the nearest of many squares of stored images."""
    x, _ = images_of(images)
    squares = F.unfold(x[-200:], size, stride=size).transpose(1, 2).flatten(0, 1)
    book = squares[torch.randperm(len(squares), generator=torch.Generator().manual_seed(1))[:count]]

    def change(x: Tensor) -> Tensor:
        parts = F.unfold(x, size, stride=size).transpose(1, 2)
        nearest = torch.cdist(parts.detach(), book.to(x)).argmin(2)
        return F.fold(book.to(x)[nearest].transpose(1, 2), x.shape[2:], size, stride=size)

    return change


def rounded_phases(levels: int) -> Change:
    """Round the phase of every Fourier coefficient; sizes are rounded in steps of a tenth."""

    def change(x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x)
        phase = (spectrum.angle() * levels / (2 * torch.pi)).round() * 2 * torch.pi / levels
        size = ((spectrum.abs() + 1e-6).log() * 10).round() / 10
        image: Tensor = torch.fft.irfft2(torch.polar(size.exp(), phase), s=x.shape[2:])
        return image.clamp(0, 1)

    return change


def centred(x: Tensor, detached: bool = True) -> Tensor:
    """Shift each image so that its brightest rows and columns come to a fixed place."""
    moved = []
    for image in x:
        bright = (image.detach().mean(0) > 0.4).to(x)
        down = int((bright.sum(1) * torch.arange(len(bright))).sum() / bright.sum().clamp(min=1))
        across = int((bright.sum(0) * torch.arange(bright.shape[1])).sum() / bright.sum().clamp(min=1))
        moved.append(image.roll((13 - down, 13 - across), (1, 2)))
    values = torch.stack(moved)
    return x + (values - x).detach() if detached else values


class Drawn(Masked):
    """A network behind a random rounding; the attacker skips it in the backward pass and averages."""

    draws = 8

    def __init__(self, net: nn.Module, draw: Change) -> None:
        super().__init__()
        self.net, self.draw = net, draw

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one draw."""
        logits: Tensor = self.net(self.draw(x.detach()))
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of one draw, with the gradient of the mean."""
        logits: Tensor = self.net(x + (self.draw(x) - x).detach())
        return logits


def up_or_down(levels: int) -> Change:
    """Round up or down at random, so that the mean is right."""
    return lambda x: (x * levels + torch.rand_like(x)).floor() / levels


def dots(x: Tensor) -> Tensor:
    """Draw nine times black or white with the pixel as probability, and take the mean."""
    return torch.stack([torch.bernoulli(x) for _ in range(9)]).mean(0)


class Alarmed(Masked):
    """Remembers fingerprints of all images; near copies of an earlier one get scores that depend on chance."""

    def __init__(self, net: nn.Module, side: int = 4, reach: float = 0.02) -> None:
        super().__init__()
        self.net, self.side, self.reach = net, side, reach
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; for near copies, the sum of them and of a steep random map."""
        z: Tensor = self.net(x)
        print_now = F.adaptive_avg_pool2d(x.detach(), self.side).flatten(1)
        known = torch.zeros(len(x), dtype=torch.bool)
        if self.seen:
            known = torch.cdist(print_now, torch.cat(self.seen[-64:]), p=torch.inf).amin(1) < self.reach
        self.seen.append(print_now)
        noise = x.flatten(1) @ (20 * torch.randn(x[0].numel(), z.shape[1]).to(x))
        return torch.where(known[:, None], z.detach() + noise - noise.detach(), z)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    books = "each square of pixels becomes the nearest stored one"
    groups = [
        *(masked(family, mask, made, partial(Changed, change=change), bases) for family, mask, made, change,
            bases in TABLE),
        *(masked("stochastic rounding" if name != "dots" else "dots", name, made, partial(Drawn, draw=draw), bases,
            asked="majority") for name, made, draw, bases in RANDOM),
        masked("code books", "squares of 2", books, lambda net: Changed(net, code_book("textures", 2, 800)),
            [TEXTURES]),
        masked("alignment behind autograd", "centred", "the symbol is moved to a fixed place, its gradient is not",
            lambda net: Changed(net, centred, partial(centred, detached=False)), [SYMBOLS]),
        masked("alarms about near copies", "false slopes", "images close to an earlier one get random slopes", Alarmed,
            [SYMBOLS_11], asked="fresh"),
    ]  # fmt: skip
    return [model for models in groups for model in models]


TABLE: Final[list[tuple[str, str, str, Change, list[str]]]] = [
    ("wavelets", "Haar", "small wavelet coefficients are dropped, others rounded", shrunk(0.06, 0.08), [MOBILENET,
        SPOTS]),
    ("ranked pixels", "equalised", "pixels become their ranks", equalised, [ALEXNET, SYMBOLS_11, WAVES]),
    ("rounded phases", "24 phases", "phases and sizes of Fourier coefficients are rounded", rounded_phases(24), [VGG,
        SYMBOLS]),
]  # fmt: skip
RANDOM: Final[list[tuple[str, str, Change, list[str]]]] = [
    ("up or down", "pixels are rounded up or down at random", up_or_down(8), [SPOTS]),
    ("dots", "pixels are means of random dots", dots, [SYMBOLS]),
]  # fmt: skip
