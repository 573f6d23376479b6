"""Densely connected networks for 32 x 32 images (Huang et al. 2017, arXiv:1608.06993, DenseNet-BC)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.layers import GlobalMean, Normalise, conv
from robustassay.registry import register


@register("architecture", "densenet")
@dataclass(frozen=True)
class DenseNet:
    """Three blocks of (depth - 4) / 6 bottlenecks, each of which adds `growth` channels; transitions halve them."""

    depth: int = 40
    growth: int = 12

    def __post_init__(self) -> None:
        if self.depth < 10 or self.depth % 6 != 4 or self.growth < 1:
            raise BadRequest(
                f"A DenseNet of depth {self.depth} and growth {self.growth} does not exist: "
                "the depth must be 10, 16, 22, ... (6n + 4) and the growth at least 1."
            )

    @property
    def title(self) -> str:
        """The name in tables: `DenseNet-BC-40 (k=12)`."""
        return f"DenseNet-BC-{self.depth} (k={self.growth})"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        channels = 2 * self.growth
        layers: list[nn.Module] = [Normalise(), conv(3, channels, 3)]
        for block in range(3):
            if block:
                layers.append(transition(channels, channels // 2))
                channels //= 2
            for _ in range((self.depth - 4) // 6):
                layers.append(Bottleneck(channels, self.growth))
                channels += self.growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU(), GlobalMean(), nn.Linear(channels, classes)]
        return nn.Sequential(*layers)


class Bottleneck(nn.Module):
    """Appends `growth` new channels, computed from all channels before them."""

    def __init__(self, channels_in: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = conv(channels_in, 4 * growth, 1)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = conv(4 * growth, growth, 3)

    def forward(self, h: Tensor) -> Tensor:
        """Return the old channels and the new."""
        new = self.conv1(F.relu(self.norm1(h)))
        new = self.conv2(F.relu(self.norm2(new)))
        return torch.cat([h, new], 1)


def transition(channels_in: int, channels: int) -> nn.Sequential:
    """Compress the channels and halve the image."""
    return nn.Sequential(nn.BatchNorm2d(channels_in), nn.ReLU(), conv(channels_in, channels, 1), nn.AvgPool2d(2))
