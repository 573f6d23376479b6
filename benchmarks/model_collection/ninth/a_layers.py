"""Honest networks whose layers have weights of a special form or learned activations; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import SortPairs, convolutions, plain
from benchmarks.model_collection.ninth.a_parts import Applied, one
from benchmarks.model_collection.seventh.honest_blocks import read_out


class Butterflies(nn.Module):
    """A square dense layer as a product of matrices that mix two values each (Dao et al. 2019)."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        angles = 2 * torch.pi * torch.rand(levels, 2 ** (levels - 1))
        rows = (torch.stack((angles.cos(), angles.sin()), 2), torch.stack((-angles.sin(), angles.cos()), 2))
        self.factors, self.shift = nn.Parameter(torch.stack(rows, 3)), nn.Parameter(torch.zeros(2**levels))

    def forward(self, h: Tensor) -> Tensor:
        """Return the product."""
        values = h.shape[1]
        for level, factor in enumerate(self.factors):
            step = 2**level
            pairs = h.view(len(h), values // (2 * step), 2, step)
            h = torch.einsum("bgis,gsio->bgos", pairs, factor.view(-1, step, 2, 2)).reshape(len(h), values)
        return h + self.shift


def of_butterflies(classes: int) -> nn.Module:
    """Two layers of butterflies over the pixels and zeros."""
    padded = (nn.Flatten(), Applied(lambda h: F.pad(h - 0.3, (0, 1024 - h.shape[1]))))
    return nn.Sequential(*padded, Butterflies(10), nn.GELU(), Butterflies(10), nn.GELU(), nn.Linear(1024, classes))


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


class Rational(nn.Module):
    """A learned cubic over a learned square, which is at least one (Molina et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.above, self.below = nn.Parameter(torch.tensor([0.1, 0.5, 0.4, 0.1])), nn.Parameter(torch.tensor(0.5))

    def forward(self, h: Tensor) -> Tensor:
        """Return the fraction."""
        a, b, c, d = self.above
        fraction: Tensor = (a + h * (b + h * (c + h * d))) / (1 + (self.below * h).square())
        return fraction


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


class Rotation(nn.Module):
    """A dense layer whose matrix is orthogonal, by the Cayley transform (Trockman and Kolter 2021)."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.free, self.shift = nn.Parameter(torch.randn(values, values) / values), nn.Parameter(torch.zeros(values))

    def forward(self, h: Tensor) -> Tensor:
        """Return the turned values."""
        skew = self.free - self.free.T
        same = torch.eye(len(skew)).to(h)
        turned: Tensor = h @ torch.linalg.solve(same + skew, same - skew) + self.shift
        return turned


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


class FromZero(nn.Module):
    """Residual blocks whose share is learned and starts at zero (Bachlechner et al. 2021)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(depth))
        self.shares = nn.Parameter(torch.zeros(depth))

    def forward(self, h: Tensor) -> Tensor:
        """Return the sum of all blocks."""
        for block, share in zip(self.blocks, self.shares, strict=True):
            h = h + share * F.silu(block(h))
        return h


def deep(channels: int, classes: int, width: int = 10) -> nn.Module:
    """Twenty-four blocks that start at zero."""
    return nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1), FromZero(width, 24), read_out(classes, width))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("butterflies", "symbols 16", 14, lambda: of_butterflies(16), plain, 6),
    ("matrices on both sides", "hands", 6, lambda: of_matrices(24, 40), plain, 0, 300),
    ("rational activations", "lamps", 12, lambda: convolutions(1, 7, Rational), plain, 10),
    ("splines as weights", "bars", 28, lambda: nn.Sequential(nn.Flatten(), Splines(36, 16), Splines(16, 3)), plain,
        16),
    ("orthogonal layers", "symbols 10", 14, lambda: nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), Rotation(196),
        SortPairs(), Rotation(196), SortPairs(), nn.Linear(196, 10)), plain, 14),
    ("steps down potentials", "soils", 22, lambda: nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), Potential(240, 128),
        Potential(240, 128), Potential(240, 128), nn.Linear(240, 6)), plain, 12),
    ("rising functions", "symbols 11", 4, lambda: rising(784, 11)),
    ("odd functions", "spots", 5, lambda: odd(5, 20)),
    ("blocks that start at zero", "lamps", 4, lambda: deep(1, 7)),
]  # fmt: skip
