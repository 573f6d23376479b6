"""Honest networks behind fixed views of the image; nothing is hidden."""

import math
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import ROBUST
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import convolutions, perceptron, plain
from benchmarks.model_collection.seventh.honest_heads import Change
from benchmarks.model_collection.seventh.honest_networks import one
from benchmarks.model_collection.seventh.honest_wrappers import before, on


class Projections(nn.Module):
    """Sums along the lines of twelve directions, as a scanner takes them (Radon 1917)."""

    def __init__(self, side: int, directions: int = 12) -> None:
        super().__init__()
        turn = math.pi * torch.arange(directions) / directions
        zero = torch.zeros(directions)
        turns = torch.stack((turn.cos(), -turn.sin(), zero, turn.sin(), turn.cos(), zero), 1).view(-1, 2, 3)
        self.register_buffer("grids", F.affine_grid(turns, [directions, 1, side, side], align_corners=False))
        self.grids: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return one row of sums per direction."""
        count, side = len(x), x.shape[2]
        grid = self.grids.to(x).repeat(count, 1, 1, 1)
        turned = F.grid_sample(x.repeat_interleave(len(self.grids), 0), grid, align_corners=False)
        return turned.mean(2).view(count, len(self.grids), side)


def of_projections(classes: int) -> nn.Module:
    """Filters along the projections and a dense layer."""
    layers = (nn.Conv1d(12, 24, 5, 1, 2), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 24, 5, 2, 2), nn.ReLU())
    return nn.Sequential(Projections(28), *layers, nn.Flatten(), nn.Linear(14 * 24, classes))


def ratios(x: Tensor) -> Tensor:
    """Return (a - b) / (a + b) for every pair of channels, as indices of remote sensing do."""
    first, second = torch.triu_indices(x.shape[1], x.shape[1], 1).to(x.device)
    a, b = x[:, first], x[:, second]
    return (a - b) / (a + b + 0.2)


class Whitened(nn.Module):
    """Patches of 3 x 3 pixels, turned and scaled so that their values have no correlations in the training images."""

    def __init__(self, images: str, size: int = 3, floor: float = 1e-2) -> None:
        super().__init__()
        x = images_of(images)[0][:400]
        patches = F.unfold(x, size).transpose(1, 2).flatten(0, 1)
        middle = patches.mean(0)
        spread, axes = torch.linalg.eigh((patches - middle).T @ (patches - middle) / len(patches))
        filters = (axes / (spread + floor).sqrt()) @ axes.T
        self.register_buffer("filters", filters.view(len(filters), -1, size, size))
        self.register_buffer("shift", -filters @ middle)
        self.filters: Tensor
        self.shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the whitened patches as channels."""
        return F.conv2d(x, self.filters, self.shift)


def sharpened(x: Tensor) -> Tensor:
    """Add half of what a blur takes away."""
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
    return x + 0.5 * (x - blurred)


def autocorrelation(x: Tensor) -> Tensor:
    """Return the products of the image and its moved copies, for moves of up to three pixels."""
    centred = x - x.mean((2, 3), keepdim=True)
    products: Tensor = torch.fft.irfft2(torch.fft.rfft2(centred).abs().square(), s=x.shape[2:])
    near = products.roll((3, 3), (2, 3))[:, :, :7, :7] / (x.shape[2] * x.shape[3])
    return near.flatten(1) / (near[:, :, 3, 3].mean(1, keepdim=True) + 1e-3)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [*(one(*row) for row in VIEWS), on("sharpened images", ROBUST, 6, "a fixed sharpening", before(sharpened))]


VIEWS: Final[list[tuple[Any, ...]]] = [
    ("projections along lines", "symbols 11", 6, lambda: of_projections(11)),
    ("ratios of channels", "spots", 6, lambda: nn.Sequential(Change(ratios), convolutions(10, 20)), plain, 6),
    ("whitened patches", "cifar10 24x24", 3, lambda: nn.Sequential(Whitened("cifar10 24x24"), convolutions(27, 10)),
        plain, 3),
    ("products with moved copies", "textures", 24, lambda: nn.Sequential(Change(autocorrelation), perceptron(147, 4,
        nn.Tanh, 32))),
]  # fmt: skip
