"""Honest networks whose layers are built from products, sums and transforms of a special form; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import plain
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.seventh.honest_heads import Change
from benchmarks.model_collection.seventh.honest_networks import one


class Quaternions(nn.Module):
    """Filters that multiply quaternions; the channels are four equal parts (Gaudet and Maida 2018)."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.parts = nn.Parameter(torch.randn(4, after // 4, before // 4, 3, 3) / (9 * before) ** 0.5)

    def forward(self, h: Tensor) -> Tensor:
        """Return the products."""
        r, i, j, k = self.parts
        rows = ((r, -i, -j, -k), (i, r, -k, j), (j, k, r, -i), (k, -j, i, r))
        weight = torch.cat([torch.cat(row, 1) for row in rows])
        return F.conv2d(h, weight, None, self.stride, 1)


def colours_as_quaternions(x: Tensor) -> Tensor:
    """Return a real part of zero and the colours as the imaginary parts."""
    return torch.cat((torch.zeros_like(x[:, :1]), x - 0.5), 1)


def of_quaternions(classes: int) -> nn.Module:
    """Three layers of quaternions."""
    layers: list[nn.Module] = [Change(colours_as_quaternions)]
    for before, after, stride in ((4, 16, 1), (16, 32, 2), (32, 32, 2)):
        layers += [Quaternions(before, after, stride), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, read_out(classes, 32))


class Circulant(nn.Module):
    """A dense layer whose weights are a circulant matrix behind fixed signs (Cheng et al. 2015)."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(values) / values**0.5)
        self.shift = nn.Parameter(torch.zeros(values))
        self.register_buffer("signs", torch.randn(values).sign())
        self.signs: Tensor

    def forward(self, h: Tensor) -> Tensor:
        """Return the product by two Fourier transforms."""
        spectrum = torch.fft.rfft(h * self.signs) * torch.fft.rfft(self.weight)
        product: Tensor = torch.fft.irfft(spectrum, n=h.shape[1]) + self.shift
        return product


class MatrixChain(nn.Module):
    """A chain of matrices, one per pixel, each a blend of two by the pixel's value (Stoudenmire and Schwab 2016)."""

    def __init__(self, sites: int, classes: int, bond: int = 12) -> None:
        super().__init__()
        same = torch.eye(bond).expand(sites, 2, bond, bond)
        self.cores = nn.Parameter(same + 0.15 * torch.randn(sites, 2, bond, bond) / bond**0.5)
        self.first, self.last = nn.Parameter(torch.randn(bond)), nn.Linear(bond, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits at the end of the chain."""
        values = x.flatten(1)
        h = self.first.expand(len(x), -1)
        for value, (dark, bright) in zip(values.unbind(1), self.cores, strict=True):
            h = (1 - value)[:, None] * (h @ dark) + value[:, None] * (h @ bright)
        logits: Tensor = self.last(h)
        return logits


class Additive(nn.Module):
    """A sum of learned functions of single pixels, one per pixel and class (Agarwal et al. 2021)."""

    def __init__(self, values: int, classes: int, parts: int = 6) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.linspace(0, 1, parts).repeat(values, 1))
        self.steepness = nn.Parameter(torch.full((values, parts), 5.0))
        self.last = nn.Linear(values * parts, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums."""
        functions = torch.tanh(self.steepness * (x.flatten(1)[:, :, None] - self.places))
        logits: Tensor = self.last(functions.flatten(1))
        return logits


class ConvexLogits(nn.Module):
    """Every logit is a convex function of the image: later weights are positive (Amos et al. 2017)."""

    def __init__(self, values: int, classes: int, width: int = 96) -> None:
        super().__init__()
        self.direct = nn.ModuleList(nn.Linear(values, after) for after in (width, width, classes))
        self.later = nn.ParameterList(torch.randn(after, width) - 4 for after in (width, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        flat = x.flatten(1) - 0.3
        h: Tensor = F.softplus(self.direct[0](flat))
        h = F.softplus(self.direct[1](flat) + h @ F.softplus(self.later[0]).T)
        logits: Tensor = self.direct[2](flat) + h @ F.softplus(self.later[1]).T
        return logits


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("quaternions", "cifar10 24x24", 4, lambda: of_quaternions(10), plain, 4),
    ("circulant weights", "pairs", 4, lambda: nn.Sequential(nn.Flatten(), Circulant(640), nn.ReLU(), Circulant(640),
        nn.ReLU(), nn.Linear(640, 100)), plain, 0, 400),
    ("chains of matrices", "symbols 10", 5, lambda: nn.Sequential(nn.AvgPool2d(4), MatrixChain(49, 10)), plain,
        0, 400),
    ("additive models", "spots", 4.5, lambda: Additive(1280, 20)),
    ("convex logits", "symbols 11", 9, lambda: ConvexLogits(784, 11)),
]  # fmt: skip
