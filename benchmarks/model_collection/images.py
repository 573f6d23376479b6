"""The images of the collection: the embedded CIFAR-10 sample in several forms, and drawn ones."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay import data

Pair = tuple[Tensor, Tensor]

ANIMALS: Final = (0, 0, 1, 1, 1, 1, 1, 1, 0, 0)
"""Per class of CIFAR-10 whether it is an animal."""
FIVE: Final = (0, 1, 2, 3, 2, 3, 4, 2, 0, 1)
"""Per class of CIFAR-10 one of five groups: by air or water, by road, wild, cat or dog, frog."""
SIX: Final = (0, 1, 2, 3, 4, 5)
"""The classes of CIFAR-10 that remain where the last four are dropped."""


@lru_cache
def images_of(name: str) -> Pair:
    """Return all images of a source, in [0, 1], and their labels."""
    return SOURCES[name]()


def cifar10() -> Pair:
    """Return the embedded sample of CIFAR-10."""
    sample = data.load("cifar10-1k")
    return sample.images(range(len(sample.labels))), torch.as_tensor(sample.labels)


def resized(side: int, grey: bool = False) -> Pair:
    """Return CIFAR-10 at another size."""
    x, y = cifar10()
    x = F.interpolate(x, size=(side, side), mode="bilinear", antialias=True).clamp(0, 1)
    return (x.mean(1, keepdim=True) if grey else x), y


def three_equal() -> Pair:
    """Return CIFAR-10 in grey, with three equal channels."""
    x, y = cifar10()
    return x.mean(1, keepdim=True).expand_as(x).clone(), y


def merged(groups: tuple[int, ...]) -> Pair:
    """Return CIFAR-10 with merged classes."""
    x, y = cifar10()
    return x, torch.tensor(groups)[y]


def kept(classes: tuple[int, ...]) -> Pair:
    """Return the images of CIFAR-10 that belong to the first classes."""
    x, y = cifar10()
    rows = torch.isin(y, torch.tensor(classes))
    return x[rows], y[rows]


SEGMENTS: Final = (
    (0, 0, 1, 9), (0, 8, 9, 9), (8, 8, 17, 9), (16, 0, 17, 9), (8, 0, 17, 1), (0, 0, 9, 1), (8, 0, 9, 9),
)  # fmt: skip
"""The segments a to g of a seven-segment display: top, left, bottom and right end."""
SYMBOLS: Final = (
    "abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg",
    "abcefg", "cdefg", "adef", "bcdeg", "adefg", "aefg",
)  # fmt: skip
"""The segments of the digits 0 to 9 and of the letters A to F."""


def symbols(classes: int, count: int = 2400) -> Pair:
    """Draw seven-segment symbols, 28 x 28 and grey, with a random place, thickness, brightness and noise."""
    draw = torch.Generator().manual_seed(classes)
    y = torch.arange(count) % classes
    x = 0.12 * torch.rand(count, 1, 28, 28, generator=draw)
    for row in range(count):
        top, left, extra = (int(v) for v in torch.randint(0, 7, (3,), generator=draw))
        level = 0.5 + 0.45 * float(torch.rand((), generator=draw))
        for letter in SYMBOLS[int(y[row])]:
            first, start, last, end = SEGMENTS["abcdefg".index(letter)]
            x[row, 0, top + first : top + last + 1 + extra % 3, left + start : left + end + 1 + extra % 3] += level
    return x.clamp(0, 1), y


def textures(count: int = 1600) -> Pair:
    """Draw stripes of four directions, 16 x 16 in colour, with random phase, period, colour and noise."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 4
    down, across = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    directions = torch.stack((down, across, (down + across) / 2**0.5, (down - across) / 2**0.5))[y]
    phase, period = torch.rand(2, count, 1, 1, generator=draw)
    waves = torch.sin(2 * torch.pi * (directions / (3 + 3 * period) + phase))[:, None]
    colours = 0.1 + 0.25 * torch.rand(count, 3, 1, 1, generator=draw)
    return (0.5 + colours * waves + 0.08 * torch.randn(count, 3, 16, 16, generator=draw)).clamp(0, 1), y


def pairs(count: int = 4000) -> Pair:
    """Draw two digits side by side, 20 x 32 and grey: 100 classes."""
    draw = torch.Generator().manual_seed(100)
    y = torch.arange(count) % 100
    x = 0.12 * torch.rand(count, 1, 20, 32, generator=draw)
    for row in range(count):
        top, shift = (int(v) for v in torch.randint(0, 3, (2,), generator=draw))
        level = 0.5 + 0.45 * float(torch.rand((), generator=draw))
        for digit, left in ((int(y[row]) // 10, shift), (int(y[row]) % 10, 16 + shift)):
            for letter in SYMBOLS[digit]:
                first, start, last, end = SEGMENTS["abcdefg".index(letter)]
                x[row, 0, top + first : top + last + 1, left + start : left + end + 1] += level
    return x.clamp(0, 1), y


def spots(count: int = 2000) -> Pair:
    """Draw a bright spot in one of five channels and one of four quarters, 16 x 16: 20 classes."""
    draw = torch.Generator().manual_seed(20)
    y = torch.arange(count) % 20
    down, across = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    place = 2 + 4 * torch.rand(count, 2, 1, 1, generator=draw)
    top, left = place[:, 0] + 8 * (y // 2 % 2).view(-1, 1, 1), place[:, 1] + 8 * (y % 2).view(-1, 1, 1)
    spot = torch.exp(-((down - top).square() + (across - left).square()) / 4)
    x = 0.3 * torch.rand(count, 5, 16, 16, generator=draw)
    x[torch.arange(count), y // 4] += 0.5 * spot
    return x.clamp(0, 1), y


def waves(count: int = 1200) -> Pair:
    """Draw slow and fast waves along a strip of 12 x 48 pixels, grey: two classes."""
    draw = torch.Generator().manual_seed(2)
    y = torch.arange(count) % 2
    phase, period = torch.rand(2, count, 1, 1, 1, generator=draw)
    lengths = torch.where(y.view(-1, 1, 1, 1) == 0, 9 + 5 * period, 4 + 3 * period)
    strip = torch.sin(2 * torch.pi * (torch.arange(48.0) / lengths + phase)).expand(count, 1, 12, 48)
    return (0.5 + 0.2 * strip + 0.1 * torch.randn(count, 1, 12, 48, generator=draw)).clamp(0, 1), y


def bars(count: int = 900) -> Pair:
    """Draw a bright row, column or corner square, 6 x 6 and grey: three classes."""
    draw = torch.Generator().manual_seed(3)
    y = torch.arange(count) % 3
    x = 0.4 * torch.rand(count, 1, 6, 6, generator=draw)
    for row, place in enumerate(torch.randint(0, 5, (count,), generator=draw).tolist()):
        area = (x[row, 0, place], x[row, 0, :, place], x[row, 0, place : place + 2, :2])[int(y[row])]
        area += 0.5
    return x.clamp(0, 1), y


SOURCES: Final[dict[str, Callable[[], Pair]]] = {
    "cifar10": cifar10,
    "cifar10 40x40": lambda: resized(40),
    "cifar10 64x64": lambda: resized(64),
    "cifar10 24x24": lambda: resized(24),
    "cifar10 grey 28x28": lambda: resized(28, grey=True),
    "cifar10 grey 32x32x3": three_equal,
    "cifar10 animals": lambda: merged(ANIMALS),
    "cifar10 five groups": lambda: merged(FIVE),
    "cifar10 six classes": lambda: kept(SIX),
    "symbols 10": lambda: symbols(10),
    "symbols 11": lambda: symbols(11),
    "symbols 16": lambda: symbols(16),
    "textures": textures,
    "pairs": pairs,
    "spots": spots,
    "waves": waves,
    "bars": bars,
}
