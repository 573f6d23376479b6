"""Honest networks whose branches are merged after training, or which see colours by hue; nothing is hidden."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions
from benchmarks.model_collection.ninth.b_training import Lesson, one, taught
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.seventh.honest_heads import Change


def hue_and_saturation(x: Tensor) -> Tensor:
    """Return brightness and the colour's direction in the plane of hues, as long as it is saturated."""
    red, green, blue = x.unbind(1)
    top = x.amax(1)
    first, second = red - (green + blue) / 2, 3**0.5 / 2 * (green - blue)
    return torch.stack((top - 0.5, first / (top + 0.1), second / (top + 0.1)), 1)


class Branches(nn.Module):
    """Filters, dense layers over channels and the identity side by side in training (Ding et al. 2021)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.large, self.small = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))

    def forward(self, h: Tensor) -> Tensor:
        """Return the sum of the three branches."""
        parts = (self.large(h), self.small(h), h)
        return F.relu(torch.stack([norm(part) for norm, part in zip(self.norms, parts, strict=True)]).sum(0))

    def merged(self) -> nn.Module:
        """Return one filter layer that gives the same."""
        filters = nn.Conv2d(self.large.in_channels, self.large.out_channels, 3, 1, 1)
        same = torch.eye(self.large.in_channels)[:, :, None, None]
        kernels = (self.large.weight, F.pad(self.small.weight, (1, 1, 1, 1)), F.pad(same, (1, 1, 1, 1)))
        shifts = (self.large.bias, self.small.bias, torch.zeros(len(same)))
        with torch.no_grad():
            assert filters.bias is not None
            filters.weight.zero_()
            filters.bias.zero_()
            for norm, kernel, shift in zip(self.norms, kernels, shifts, strict=True):
                assert isinstance(norm, nn.BatchNorm2d)
                assert norm.running_var is not None
                assert shift is not None
                scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
                filters.weight += scale[:, None, None, None] * kernel
                filters.bias += torch.as_tensor(norm.bias) + scale * (shift - torch.as_tensor(norm.running_mean))
        return nn.Sequential(filters, nn.ReLU())


def branched(channels: int, classes: int, width: int = 16) -> nn.Sequential:
    """Two layers of branches between an entrance, smaller maps and a head."""
    enter = nn.Conv2d(channels, width, 3, 2, 1)
    return nn.Sequential(enter, Branches(width), nn.MaxPool2d(2), Branches(width), read_out(classes, width))


def merged_branches(name: str, images: str, channels: int, classes: int, teach: Lesson) -> nn.Module:
    """Return the network with each layer's branches merged into one."""
    net = taught(name, partial(branched, channels, classes), images, teach)
    assert isinstance(net, nn.Sequential)
    return nn.Sequential(*(part.merged() if isinstance(part, Branches) else part for part in net)).eval()


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    lesson = Lesson(200, 10, 2)
    build = partial(merged_branches, "branches", "symbols 16", 1, 16, lesson)
    merged = Entry(
        "branches merged after training, symbols 16, robust", "branches merged after training", "honest",
        "trained for 200 steps against 10/255, then merged", build, "symbols 16", 16, (1, 28, 28), 20 / 255,
    )  # fmt: skip
    colours = one(
        "hue and saturation", "cifar10 six classes", 4,
        lambda: nn.Sequential(Change(hue_and_saturation), convolutions(3, 6, nn.LeakyReLU)), Lesson(250, 2, 1),
    )  # fmt: skip
    return [merged, colours]
