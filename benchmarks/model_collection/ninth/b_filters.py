"""Honest convolutional networks of published designs, at small size; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.ninth.b_training import Lesson, one
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.sixth.honest_parts import filters


class NormFirst(nn.Module):
    """Twice a norm, an activation and filters, beside a path of its own (He et al. 2016)."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        enter = (nn.GroupNorm(4, before), nn.ReLU(), nn.Conv2d(before, after, 3, stride, 1))
        leave = (nn.GroupNorm(4, after), nn.ReLU(), nn.Conv2d(after, after, 3, 1, 1))
        self.body, self.beside = nn.Sequential(*enter, *leave), nn.Conv2d(before, after, 1, stride)

    def forward(self, h: Tensor) -> Tensor:
        """Return the sum of both paths."""
        total: Tensor = self.body(h) + self.beside(h)
        return total


class Bottleneck(nn.Module):
    """Wide depthwise filters whose channels are weighed, left out now and then in training (Tan and Le 2019)."""

    def __init__(self, before: int, after: int, stride: int = 1, wider: int = 4) -> None:
        super().__init__()
        width = wider * before
        self.enter = nn.Sequential(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU())
        depthwise = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
        self.middle = nn.Sequential(depthwise, nn.BatchNorm2d(width), nn.SiLU())
        self.weigh = nn.Sequential(nn.Linear(width, before), nn.SiLU(), nn.Linear(before, width), nn.Sigmoid())
        self.leave = nn.Sequential(nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after))
        self.same = before == after and stride == 1

    def forward(self, h: Tensor) -> Tensor:
        """Return the features, with the input where sizes allow it."""
        wide = self.middle(self.enter(h))
        change: Tensor = self.leave(wide * self.weigh(wide.mean((2, 3)))[:, :, None, None])
        if not self.same:
            return change
        if self.training:
            change = change * (torch.rand(len(h), 1, 1, 1) > 0.1) / 0.9
        return h + change


class Shuffled(nn.Module):
    """Half of the channels pass through, half are filtered, then both are shuffled (Ma et al. 2018)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        depthwise = (nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half))
        ends = [(nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU()) for _ in range(2)]
        self.change = nn.Sequential(*ends[0], *depthwise, *ends[1])

    def forward(self, h: Tensor) -> Tensor:
        """Return the shuffled channels."""
        kept, changed = h.chunk(2, 1)
        return F.channel_shuffle(torch.cat((kept, self.change(changed)), 1), 2)


class Cheap(nn.Module):
    """Half of the maps come from filters, the rest from cheap filters of those maps (Han et al. 2020)."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        half = after // 2
        self.dear = filters(before, half, stride)
        self.cheap = nn.Sequential(nn.Conv2d(half, half, 3, 1, 1, groups=half), nn.BatchNorm2d(half), nn.ReLU())

    def forward(self, h: Tensor) -> Tensor:
        """Return both kinds of maps."""
        dear = self.dear(h)
        return torch.cat((dear, self.cheap(dear)), 1)


class Blur(nn.Module):
    """A fixed blur with stride 2, behind maxima of neighbours (Zhang 2019)."""

    def forward(self, h: Tensor) -> Tensor:
        """Return maps of half the size."""
        line = torch.tensor([0.25, 0.5, 0.25]).to(h)
        weight = torch.outer(line, line).expand(h.shape[1], 1, 3, 3)
        tops = F.pad(F.max_pool2d(h, 2, 1), (1, 2, 1, 2), mode="replicate")
        return F.conv2d(tops, weight, None, 2, groups=h.shape[1])


class Selective(nn.Module):
    """Small and wide filters, of which each channel takes a share that the image decides (Li et al. 2019)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.small = filters(before, after)
        wide = nn.Conv2d(before, after, 3, 1, 2, dilation=2, bias=False)
        self.wide = nn.Sequential(wide, nn.BatchNorm2d(after), nn.ReLU())
        self.share = nn.Sequential(nn.Linear(after, 8), nn.ReLU(), nn.Linear(8, 2 * after))

    def forward(self, h: Tensor) -> Tensor:
        """Return the shared maps."""
        both = torch.stack((self.small(h), self.wide(h)), 1)
        share = self.share(both.sum(1).mean((2, 3))).view(len(h), 2, -1).softmax(1)
        shared: Tensor = (both * share[:, :, :, None, None]).sum(1)
        return shared


class Wavelets(nn.Module):
    """Half the size by the four Haar wavelets of each 2 x 2 square, mixed by dense layers (Liu et al. 2018)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Conv2d(4 * before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())

    def forward(self, h: Tensor) -> Tensor:
        """Return the mixed wavelets."""
        a, b, c, d = h[:, :, ::2, ::2], h[:, :, ::2, 1::2], h[:, :, 1::2, ::2], h[:, :, 1::2, 1::2]
        waves = torch.cat((a + b + c + d, a + b - c - d, a - b + c - d, a - b - c + d), 1) / 2
        mixed: Tensor = self.mix(waves)
        return mixed


class Denoised(nn.Module):
    """Each place is joined by a mean over all places that are like it (Xie et al. 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.join = nn.Conv2d(width, width, 1)

    def forward(self, h: Tensor) -> Tensor:
        """Return the features plus their means."""
        flat = h.flatten(2)
        likeness = torch.softmax(flat.transpose(1, 2) @ flat / h.shape[1] ** 0.5, 2)
        means = (flat @ likeness.transpose(1, 2)).view_as(h)
        joined: Tensor = h + self.join(means)
        return joined


def stacked(channels: int, classes: int, width: int, *middle: nn.Module) -> nn.Module:
    """First filters, the given parts, which end in twice the width, and a head."""
    return nn.Sequential(filters(channels, width), *middle, read_out(classes, 2 * width))


def norms_first(channels: int, classes: int) -> nn.Module:
    """Three blocks whose norms come first."""
    enter = nn.Conv2d(channels, 12, 3, 1, 1)
    blocks = (NormFirst(12, 16, 2), NormFirst(16, 24, 2), NormFirst(24, 24))
    return nn.Sequential(enter, *blocks, nn.GroupNorm(4, 24), nn.ReLU(), read_out(classes, 24))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("norms before filters", "cifar10 24x24", 3, lambda: norms_first(3, 10), Lesson(300, 2, 1, 6e-3, 0.05)),
    ("inverted bottlenecks", "symbols 16", 14, lambda: stacked(1, 16, 8, Bottleneck(8, 12, 2), Bottleneck(12, 12),
        Bottleneck(12, 16, 2)), Lesson(150)),
    ("shuffled channels", "pairs", 23, lambda: stacked(1, 100, 16, Shuffled(16), filters(16, 32, 2), Shuffled(32)),
        Lesson(200, 4, 1)),
    ("cheap maps", "symbols 11", 22, lambda: stacked(1, 11, 12, Cheap(12, 24, 2), Cheap(24, 24, 2)),
        Lesson(150, 12, 3)),
    ("blurred strides", "textures", 34, lambda: stacked(3, 4, 12, Blur(), filters(12, 24), Blur()),
        Lesson(150, 0, 0, 0.05, 5e-4, "sgd")),
    ("shares of two filters", "symbols 10", 13, lambda: stacked(1, 10, 8, nn.MaxPool2d(2), Selective(8, 16),
        Selective(16, 16)), Lesson(150)),
    ("wavelets between layers", "cifar10 six classes", 4, lambda: stacked(3, 6, 12, Wavelets(12, 16), filters(16, 16),
        Wavelets(16, 24)), Lesson(200, 3, 1, 6e-3, 0.02)),
    ("denoised features", "cifar10 animals", 10, lambda: stacked(3, 2, 10, filters(10, 20, 2), filters(20, 20, 2),
        Denoised(20)), Lesson(150, 5, 3)),
]  # fmt: skip
