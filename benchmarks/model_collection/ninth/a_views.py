"""Honest networks behind other views of an image: moments, turns, ranks, local phases, templates; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, perceptron, plain
from benchmarks.model_collection.ninth.a_parts import Applied, one
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.sixth.honest_parts import filters


class Moments(nn.Module):
    """The image's products with Legendre polynomials of its rows and columns (Teague 1980)."""

    def __init__(self, down: int, across: int, degrees: int = 12) -> None:
        super().__init__()
        self.register_buffer("rows", self.polynomials(down, degrees))
        self.register_buffer("columns", self.polynomials(across, degrees))
        self.rows: Tensor
        self.columns: Tensor

    @staticmethod
    def polynomials(count: int, degrees: int) -> Tensor:
        """Return the polynomials at so many places, scaled to a length of one."""
        place = torch.linspace(-1, 1, count)
        found = [torch.ones(count), place]
        for n in range(1, degrees - 1):
            found.append(((2 * n + 1) * place * found[n] - n * found[n - 1]) / (n + 1))
        return F.normalize(torch.stack(found), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the flat moments."""
        return (self.rows @ (x - 0.3) @ self.columns.T).flatten(1)


def log_polar(x: Tensor) -> Tensor:
    """Sample circles around the middle, of growing radius, at 32 angles that close up."""
    radius = torch.logspace(-0.9, 0.1, 12).to(x)
    angle = 2 * torch.pi * torch.arange(-2, 34).to(x) / 32
    grid = torch.stack((radius[:, None] * angle.cos(), radius[:, None] * angle.sin()), 2)
    return F.grid_sample(x, grid.expand(len(x), -1, -1, -1), align_corners=False)


def ranked(x: Tensor) -> Tensor:
    """Return soft ranks: the share of pixels that each one is brighter than, counted on a coarse grid."""
    others = x[:, :, 1::4, 1::4].flatten(1)[:, :, None, None]
    return torch.sigmoid((x - others) / 0.08).mean(1, keepdim=True)


def surround(x: Tensor) -> Tensor:
    """Return logarithms of the pixels less those of what lies around them (Land 1977)."""
    around = F.avg_pool2d(F.pad(x, (4, 4, 4, 4), mode="replicate"), 9, 1)
    return torch.log((x + 0.1) / (around + 0.1))


def ink(x: Tensor) -> Tensor:
    """Return the amounts of cyan, magenta, yellow and black ink."""
    brightest = x.amax(1, keepdim=True)
    return torch.cat(((brightest - x) / (brightest + 0.1), 1 - brightest), 1) - 0.2


def monogenic(x: Tensor) -> Tensor:
    """Return sizes, phases and directions of waves in two bands, by a Riesz transform (Felsberg and Sommer 2001)."""
    down, across = torch.fft.fftfreq(x.shape[2]).to(x)[:, None], torch.fft.rfftfreq(x.shape[3]).to(x)
    far = (down.square() + across.square()).sqrt() + 1e-6
    spectrum, found = torch.fft.rfft2(x.mean(1, keepdim=True) - 0.5), []
    for middle in (0.12, 0.3):
        band = spectrum * torch.exp(-(far / middle).log().square() / 0.5)
        even, one_, two = (
            torch.fft.irfft2(band * part, s=x.shape[2:]) for part in (1, -1j * down / far, -1j * across / far)
        )
        size = (even.square() + one_.square() + two.square() + 1e-3).sqrt()
        turn = (one_.square() - two.square()) / size.square()
        found += [3 * size, even / size, turn, 2 * one_ * two / size.square()]
    return torch.cat(found, 1)


class Templates(nn.Module):
    """Correlations of every window with learned templates, both scaled to the same mean and spread (Lewis 1995)."""

    def __init__(self, count: int, size: int = 7) -> None:
        super().__init__()
        self.size, self.templates = size, nn.Parameter(torch.randn(count, 1, size, size))

    def forward(self, x: Tensor) -> Tensor:
        """Return the correlations."""
        flat = self.templates.flatten(1) - self.templates.mean((2, 3))
        mean, square = F.avg_pool2d(x, self.size, 1), F.avg_pool2d(x.square(), self.size, 1)
        spread = ((square - mean.square()).clamp(min=0) + 3e-3).sqrt() * self.size
        return 3 * F.conv2d(x, F.normalize(flat, dim=1).view_as(self.templates)) / spread


class TwoFrequencies(nn.Module):
    """Fine and coarse maps, each filtered from both (octave convolutions, Chen et al. 2019)."""

    def __init__(self, channels: int, classes: int, width: int = 8) -> None:
        super().__init__()
        self.first = filters(channels, 2 * width)
        self.ways = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(8))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4))
        self.last, self.low = read_out(classes, width), read_out(classes, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of both kinds of maps."""
        fine, coarse = self.first(x).chunk(2, 1)
        coarse = F.avg_pool2d(coarse, 2)
        for number in range(2):
            ways, norms = self.ways[4 * number : 4 * number + 4], self.norms[2 * number : 2 * number + 2]
            up = F.interpolate(ways[1](coarse), scale_factor=2.0)
            down = ways[3](F.avg_pool2d(fine, 2))
            fine, coarse = F.relu(norms[0](ways[0](fine) + up)), F.relu(norms[1](ways[2](coarse) + down))
            if not number:
                fine, coarse = F.avg_pool2d(fine, 2), F.avg_pool2d(coarse, 2)
        logits: Tensor = self.last(fine) + self.low(coarse)
        return logits


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in VIEWS]


def behind(view: Any, net: nn.Module) -> nn.Module:
    """Return a network behind a view."""
    return nn.Sequential(Applied(view), net)


VIEWS: Final[list[tuple[Any, ...]]] = [
    ("moments", "symbols 10", 18, lambda: nn.Sequential(Moments(28, 28), perceptron(144, 10, nn.SiLU)), plain, 12),
    ("circles around the middle", "hands", 12, lambda: behind(log_polar, convolutions(1, 40)), plain, 6, 250),
    ("soft ranks", "symbols 16", 10, lambda: behind(ranked, convolutions(1, 16)), plain, 6),
    ("centre and surround", "cifar10 animals", 6, lambda: behind(surround, convolutions(3, 2)), plain, 4),
    ("ink", "cifar10 six classes", 4, lambda: behind(ink, convolutions(4, 6)), plain, 1.5, 250),
    ("local phases", "textures", 24, lambda: behind(monogenic, convolutions(8, 4))),
    ("correlation with templates", "symbols 11", 14, lambda: nn.Sequential(Templates(24), nn.ReLU(), nn.AvgPool2d(2),
        filters(24, 16), read_out(11, 16))),
    ("two frequencies", "cifar10 five groups", 8, lambda: TwoFrequencies(3, 5), plain, 3, 150),
]  # fmt: skip
