"""Honest networks whose layers have weights of a special form or learned activations; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import plain
from benchmarks.model_collection.ninth.a_parts import Applied, one


class BothSides(nn.Module):
    """Every map is a sum of products of the map before with a matrix on the left and one on the right."""

    def __init__(self, maps: int, before: tuple[int, int], after: tuple[int, int], terms: int = 2) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(terms, maps, after[0], before[0]) / before[0] ** 0.5)
        self.right = nn.Parameter(torch.randn(terms, maps, after[1], before[1]) / before[1] ** 0.5)

    def forward(self, h: Tensor) -> Tensor:
        """Return the sums."""
        total: Tensor = torch.stack([a @ h @ b.mT for a, b in zip(self.left, self.right, strict=True)]).sum(0)
        return total


def of_matrices(side: int, classes: int, maps: int = 16) -> nn.Module:
    """Two layers of products from both sides."""
    first = (BothSides(maps, (side, side), (12, 12)), nn.BatchNorm2d(maps), nn.ReLU())
    second = (BothSides(maps, (12, 12), (8, 8)), nn.BatchNorm2d(maps), nn.ReLU())
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(64 * maps, classes))


class Splines(nn.Module):
    """Each weight is a cubic spline of its input, and a straight line beyond it (Liu et al. 2024)."""

    def __init__(self, before: int, after: int, knots: int = 8) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-1.5, 1.5, knots))
        self.splines, self.line = nn.Linear(before * knots, after), nn.Linear(before, after)
        self.knots: Tensor

    def forward(self, h: Tensor) -> Tensor:
        """Return the sums of the splines."""
        apart = ((h[:, :, None] - self.knots) * (len(self.knots) - 1) / 3).abs()
        bumps = (F.relu(2 - apart).pow(3) - 4 * F.relu(1 - apart).pow(3)) / 4
        total: Tensor = self.line(h) + self.splines(bumps.flatten(1))
        return total


class Potential(nn.Module):
    """A step down a convex function, short enough to bring no two images further apart (Meunier et al. 2022)."""

    def __init__(self, values: int, width: int) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.randn(width, values)), nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        """Return the values after the step."""
        with torch.no_grad():
            v = torch.ones(self.weight.shape[1]).to(h)
            for _ in range(12):
                v = F.normalize(self.weight.T @ (self.weight @ v), dim=0)
        square = (self.weight @ v).square().sum()
        return h - 2 / square * F.relu(h @ self.weight.T + self.shift) @ self.weight


class Rising(nn.Module):
    """A dense layer of positive weights and a normalisation, so that every output rises with every input."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.raw, self.norm = nn.Parameter(torch.randn(after, before) - 3), nn.BatchNorm1d(after, affine=False)
        self.shift = nn.Parameter(0.5 * torch.randn(after))

    def forward(self, h: Tensor) -> Tensor:
        """Return the sums."""
        total: Tensor = self.norm(h @ F.softplus(self.raw).T) + self.shift
        return total


def rising(values: int, classes: int) -> nn.Module:
    """Logits that rise with the pixels and with their negatives (Sill 1997)."""
    both = (nn.Flatten(), Applied(lambda h: torch.cat((h, 1 - h), 1)))
    return nn.Sequential(*both, Rising(2 * values, 128), nn.Tanh(), Rising(128, 64), nn.Tanh(), Rising(64, classes),
                         Applied(lambda h: 4 * h))  # fmt: skip


def odd(channels: int, classes: int, width: int = 12) -> nn.Module:
    """Filters without shifts and odd activations: the negative of an input has the negative logits."""
    layers: list[nn.Module] = [Applied(lambda x: x - 0.15)]
    for before, after, stride in ((channels, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 2)):
        layers += [nn.Conv2d(before, after, 3, stride, 1, bias=False), Applied(lambda h: torch.asinh(2 * h))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * width, classes, bias=False))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("matrices on both sides", "hands", 6, lambda: of_matrices(24, 40), plain, 0, 300),
    ("splines as weights", "bars", 28, lambda: nn.Sequential(nn.Flatten(), Splines(36, 16), Splines(16, 3)), plain,
        16),
    ("steps down potentials", "soils", 22, lambda: nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), Potential(240, 128),
        Potential(240, 128), Potential(240, 128), nn.Linear(240, 6)), plain, 12),
    ("rising functions", "symbols 11", 4, lambda: rising(784, 11)),
    ("odd functions", "spots", 5, lambda: odd(5, 20)),
]  # fmt: skip
