"""Honest networks that gather an image by attention, memories, sorting, paths or mixing; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import plain
from benchmarks.model_collection.ninth.a_parts import one
from benchmarks.model_collection.sixth.honest_parts import filters


class Signature(nn.Module):
    """The columns are a path, read by its iterated integrals up to the third (Chen 1954, Kidger et al. 2019)."""

    def __init__(self, values: int, columns: int, classes: int, width: int = 5) -> None:
        super().__init__()
        self.enter, self.columns = nn.Linear(values, width - 1), columns
        count = width + width**2 + width**3
        self.last = nn.Sequential(nn.BatchNorm1d(count), nn.Linear(count, 64), nn.Tanh(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the integrals."""
        path = self.enter(x.flatten(1, 2).transpose(1, 2)).cumsum(1) / 4
        time = torch.linspace(0, 1, self.columns).to(x).expand(len(x), -1)[:, :, None]
        values = path.shape[2] + 1
        first, second = x.new_zeros(len(x), values), x.new_zeros(len(x), values, values)
        third = x.new_zeros(len(x), values, values, values)
        for d in torch.cat((path, time), 2).diff(dim=1).unbind(1):
            two = d[:, :, None] * d[:, None]
            third = third + (second + first[:, :, None] / 2 * d[:, None] + two / 6)[..., None] * d[:, None, None]
            second = second + first[:, :, None] * d[:, None] + two / 2
            first = first + d
        logits: Tensor = self.last(torch.cat((first, second.flatten(1), third.flatten(1)), 1))
        return logits


class Slots(nn.Module):
    """A few slots compete for the patches in three rounds (Locatello et al. 2020)."""

    def __init__(self, channels: int, places: int, classes: int, slots: int = 4, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Conv2d(channels, width, 4, 2, 1), nn.ReLU())
        self.place, self.width = nn.Parameter(0.3 * torch.randn(places, width)), width
        self.norm, self.both = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.first, self.ask = nn.Parameter(torch.randn(slots, width)), nn.Linear(width, width)
        self.again, self.last = nn.GRUCell(width, width), nn.Linear(slots * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the slots."""
        key, value = self.both(self.norm(self.embed(x).flatten(2).transpose(1, 2) + self.place)).chunk(2, 2)
        h = self.first.expand(len(x), -1, -1)
        for _ in range(3):
            shares = (self.ask(h) @ key.transpose(1, 2) / self.width**0.5).softmax(1) + 1e-3
            seen = shares / shares.sum(2, keepdim=True) @ value
            h = self.again(seen.flatten(0, 1), h.flatten(0, 1)).view(h.shape)
        logits: Tensor = self.last(h.flatten(1))
        return logits


def sparsemax(z: Tensor) -> Tensor:
    """Return the nearest probabilities to the values of the last axis (Martins and Astudillo 2016)."""
    sorted_z = z.sort(-1, descending=True).values
    ranks = torch.arange(1, z.shape[-1] + 1).to(z)
    sums = sorted_z.cumsum(-1) - 1
    count = (ranks * sorted_z > sums).sum(-1, keepdim=True)
    return F.relu(z - sums.gather(-1, count - 1) / count)


class FewAttended(nn.Module):
    """Attention over patches in which most weights are zero."""

    def __init__(self, channels: int, patch: int, places: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed, self.place = (
            nn.Conv2d(channels, width, patch, patch),
            nn.Parameter(0.1 * torch.randn(places, width)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.dense = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(2)
        )
        self.last = nn.Linear(places * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.embed(x - 0.3).flatten(2).transpose(1, 2) + self.place
        for number, (mix, dense) in enumerate(zip(self.mix, self.dense, strict=True)):
            query, key, value = mix(self.norms[2 * number](h)).chunk(3, -1)
            h = h + sparsemax(query @ key.transpose(1, 2) / h.shape[2] ** 0.5) @ value
            h = h + dense(self.norms[2 * number + 1](h))
        logits: Tensor = self.last(h.flatten(1))
        return logits


class Ordered(nn.Module):
    """Each channel's responses are sorted, and the ranks have learned weights (Yager 1988)."""

    def __init__(self, channels: int, classes: int, places: int, width: int = 24, sums: int = 3) -> None:
        super().__init__()
        self.see = nn.Sequential(filters(channels, width), filters(width, width, 2))
        self.weights = nn.Parameter(torch.randn(sums, width, places) / places**0.5)
        self.last = nn.Linear(sums * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the weighed sums."""
        ranked = self.see(x).flatten(2).sort(2).values
        logits: Tensor = self.last(torch.einsum("bcp,scp->bsc", ranked, self.weights).flatten(1))
        return logits


class FourierMixing(nn.Module):
    """Patches are mixed by the real part of a Fourier transform, nothing else (Lee-Thorp et al. 2022)."""

    def __init__(self, channels: int, patch: int, places: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed, self.place = (
            nn.Conv2d(channels, width, patch, patch),
            nn.Parameter(0.1 * torch.randn(places, width)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.dense = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)) for _ in range(2)
        )
        self.last = nn.Linear(places * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.embed(x - 0.2).flatten(2).transpose(1, 2) + self.place
        for number, dense in enumerate(self.dense):
            h = h + torch.fft.fft2(self.norms[2 * number](h), norm="ortho").real
            h = h + dense(self.norms[2 * number + 1](h))
        logits: Tensor = self.last(h.flatten(1))
        return logits


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("iterated integrals", "lamps", 4, lambda: Signature(14, 40, 7), plain, 0, 250),
    ("competing slots", "soils", 26, lambda: Slots(4, 60, 6), plain, 8),
    ("sparse attention", "symbols 10", 9, lambda: FewAttended(1, 4, 49, 10), plain, 0, 250),
    ("weighed ranks", "textures", 24, lambda: Ordered(3, 4, 64), plain, 12),
    ("Fourier mixing", "hands", 10, lambda: FourierMixing(1, 3, 64, 40), plain, 5, 300),
]
