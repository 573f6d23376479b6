"""Honest networks with unusual ways from one feature map to the next; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import plain
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.seventh.honest_networks import one


class Shifts(nn.Module):
    """Groups of channels move by one pixel each, between two dense layers over channels (Wu et al. 2018)."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        width = 18
        self.enter = nn.Sequential(nn.Conv2d(before, width, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.leave = nn.Sequential(nn.Conv2d(width, after, 1, stride), nn.BatchNorm2d(after), nn.ReLU())

    def forward(self, h: Tensor) -> Tensor:
        """Return the mixed channels after the moves."""
        moves = [(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1)]
        groups = F.pad(self.enter(h), (1, 1, 1, 1)).chunk(9, 1)
        moved = [group.roll(move, (2, 3))[:, :, 1:-1, 1:-1] for group, move in zip(groups, moves, strict=True)]
        mixed: Tensor = self.leave(torch.cat(moved, 1))
        return mixed


class BetweenChannels(nn.Module):
    """Attention between channels, not places, with unit queries and keys (El-Nouby et al. 2021)."""

    def __init__(self, channels: int, patch: int, places: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(0.1 * torch.randn(1, places, width))
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.near = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1, groups=width) for _ in range(2))
        self.dense = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(2)
        )
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Flatten(), nn.Linear(places * width, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of all places."""
        maps = self.embed(x - 0.5)
        h = maps.flatten(2).transpose(1, 2) + self.place
        for mix, near, dense in zip(self.mix, self.near, self.dense, strict=True):
            query, key, value = mix(F.layer_norm(h, h.shape[2:])).chunk(3, -1)
            likeness = F.normalize(query, dim=1).transpose(1, 2) @ F.normalize(key, dim=1)
            h = h + value @ torch.softmax(4 * likeness, -1).transpose(1, 2)
            h = h + near(h.transpose(1, 2).reshape(maps.shape)).flatten(2).transpose(1, 2)
            h = h + dense(h)
        logits: Tensor = self.last(h)
        return logits


class FewReaders(nn.Module):
    """A few learned readers look at all patches and at each other, twice (Jaegle et al. 2021)."""

    def __init__(self, channels: int, patch: int, places: int, classes: int, readers: int = 8) -> None:
        super().__init__()
        width = 32
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(0.3 * torch.randn(1, places, width))
        self.readers = nn.Parameter(0.3 * torch.randn(1, readers, width))
        self.read = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
        self.talk = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True) for _ in range(2)
        )
        self.last = nn.Linear(readers * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of all readers."""
        seen = self.embed(2 * x - 1).flatten(2).transpose(1, 2)
        seen = seen + self.place
        h = self.readers.expand(len(x), -1, -1)
        for read, talk in zip(self.read, self.talk, strict=True):
            h = talk(h + read(h, seen, seen, need_weights=False)[0])
        logits: Tensor = self.last(h.flatten(1))
        return logits


class Divided(nn.Module):
    """Each channel is divided by a root of the weighed squares of all channels nearby (Ballé et al. 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(0.3 * torch.randn(width, width) - 2 + 2 * torch.eye(width))
        self.floor = nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        """Return the divided channels."""
        squares = F.conv2d(h.square(), F.softplus(self.weights)[:, :, None, None], F.softplus(self.floor))
        return h / (squares + 0.1).sqrt()


def divided(channels: int, classes: int) -> nn.Module:
    """Three layers of filters with divisions and no other activation."""
    layers: list[nn.Module] = []
    for before, after, stride in ((channels, 12, 1), (12, 24, 2), (24, 24, 2)):
        layers += [nn.Conv2d(before, after, 3, stride, 1), Divided(after)]
    return nn.Sequential(*layers, read_out(classes, 24))


class LabelField(nn.Module):
    """Soft labels of places that agree with their neighbours after five mean-field steps (Zheng et al. 2015)."""

    def __init__(self, channels: int, classes: int, kinds: int = 10) -> None:
        super().__init__()
        first = (nn.Conv2d(channels, 24, 5, 2, 2), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, kinds, 1))
        self.alone, self.agree = nn.Sequential(*first), nn.Conv2d(kinds, kinds, 3, 1, 1, bias=False)
        self.last = read_out(classes, kinds)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the soft labels."""
        alone = self.alone(x - 0.5)
        h = alone.softmax(1)
        for _ in range(5):
            h = torch.softmax(alone + 2 * self.agree(h), 1)
        logits: Tensor = self.last(4 * h)
        return logits


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("shifted channels", "cifar10 animals", 2, lambda: nn.Sequential(Shifts(3, 16, 2), Shifts(16, 24), Shifts(24, 24,
        2), read_out(2, 24))),
    ("attention between channels", "symbols 16", 10, lambda: BetweenChannels(1, 4, 49, 16), plain, 0, 250),
    ("few readers", "symbols 11", 7, lambda: FewReaders(1, 4, 49, 11), plain, 0, 400),
    ("division by neighbours", "cifar10 six classes", 3, lambda: divided(3, 6), plain, 2),
    ("fields of patch labels", "symbols 16", 8, lambda: LabelField(1, 16)),
]  # fmt: skip
