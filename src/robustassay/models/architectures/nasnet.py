"""A small network of NASNet-A cells (Zoph et al. 2018, arXiv:1707.07012, figure 4).

Left out: the auxiliary classifier and dropped paths, which only matter for networks trained far longer.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.layers import Normalise, conv
from robustassay.registry import register


@register("architecture", "nasnet")
@dataclass(frozen=True)
class NASNet:
    """Three stages of `cells` normal cells with 1, 2 and 4 times `filters`, and reduction cells between them."""

    cells: int = 1
    filters: int = 24

    def __post_init__(self) -> None:
        if self.cells < 1 or self.filters < 1:
            raise BadRequest("A NASNet needs at least one cell per stage and one filter.")

    @property
    def title(self) -> str:
        """The name in tables: `NASNet-A (1 @ 24)`."""
        return f"NASNet-A ({self.cells} @ {self.filters})"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        return CellNetwork(self.cells, self.filters, classes)


class CellNetwork(nn.Module):
    """The network of a `NASNet`; the inputs of a cell are the outputs of the two cells before it."""

    def __init__(self, cells: int, filters: int, classes: int) -> None:
        super().__init__()
        self.normalise = Normalise()
        self.stem = nn.Sequential(conv(3, 3 * filters, 3), nn.BatchNorm2d(3 * filters))
        before = last = 3 * filters
        self.cells = nn.ModuleList()
        for stage in range(3):
            width = filters << stage
            for number in range(cells + bool(stage)):
                made: nn.Module
                made = ReductionCell(last, before, width) if stage and not number else NormalCell(last, before, width)
                self.cells.append(made)
                before, last = last, (4 if isinstance(made, ReductionCell) else 6) * width
        self.head = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images in [0, 1]."""
        before = last = self.stem(self.normalise(x))
        for cell in self.cells:
            before, last = last, cell(last, before)
        logits: Tensor = self.head(F.relu(last).mean((2, 3)))
        return logits


class NormalCell(nn.Module):
    """A normal cell: five sums of two operations each, concatenated with the older input."""

    def __init__(self, channels: int, channels_before: int, width: int) -> None:
        super().__init__()
        self.squeeze = Squeeze(channels, width)
        self.squeeze_before = Squeeze(channels_before, width)
        self.near3 = separable(width, 3)
        self.near5 = separable(width, 5)
        self.far3 = nn.ModuleList([separable(width, 3), separable(width, 3)])
        self.far5 = separable(width, 5)

    def forward(self, h: Tensor, before: Tensor) -> Tensor:
        """Return six times `width` channels."""
        g = self.squeeze_before(before, h.shape[-1])
        h = self.squeeze(h, h.shape[-1])
        return torch.cat(
            [
                g,
                self.near3(h) + h,
                self.far3[0](g) + self.near5(h),
                mean3(h) + g,
                mean3(g) + mean3(g),
                self.far5(g) + self.far3[1](g),
            ],
            1,
        )


class ReductionCell(nn.Module):
    """A reduction cell, which halves the size: three sums of strided operations, and two sums of their results."""

    def __init__(self, channels: int, channels_before: int, width: int) -> None:
        super().__init__()
        self.squeeze = Squeeze(channels, width)
        self.squeeze_before = Squeeze(channels_before, width)
        self.near5 = separable(width, 5, stride=2)
        self.far7 = nn.ModuleList([separable(width, 7, stride=2), separable(width, 7, stride=2)])
        self.far5 = separable(width, 5, stride=2)
        self.inner3 = separable(width, 3)

    def forward(self, h: Tensor, before: Tensor) -> Tensor:
        """Return four times `width` channels of half the size."""
        g = self.squeeze_before(before, h.shape[-1])
        h = self.squeeze(h, h.shape[-1])
        peak = F.max_pool2d(h, 3, stride=2, padding=1)
        first = self.near5(h) + self.far7[0](g)
        second = peak + self.far7[1](g)
        third = mean3(h, stride=2) + self.far5(g)
        return torch.cat([second, third, mean3(first) + second, self.inner3(first) + peak], 1)


class Squeeze(nn.Module):
    """Brings an input to the cell's number of channels, and to half its size where a cell before it halved."""

    def __init__(self, channels_in: int, width: int) -> None:
        super().__init__()
        self.conv = conv(channels_in, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, h: Tensor, side: int) -> Tensor:
        """Return `width` channels of the given side."""
        if h.shape[-1] != side:
            h = F.avg_pool2d(h, 2)
        squeezed: Tensor = self.norm(self.conv(F.relu(h)))
        return squeezed


def separable(width: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Relu, depthwise and pointwise convolution and batch norm, twice; only the first one strides."""
    layers: list[nn.Module] = []
    for step in (stride, 1):
        layers += [nn.ReLU(), conv(width, width, kernel, step, groups=width)]
        layers += [conv(width, width, 1), nn.BatchNorm2d(width)]
    return nn.Sequential(*layers)


def mean3(h: Tensor, stride: int = 1) -> Tensor:
    """Average over 3 x 3 windows of what lies inside the image."""
    return F.avg_pool2d(h, 3, stride, padding=1, count_include_pad=False)
