"""Residual networks for 32 x 32 images (He et al. 2016, arXiv:1512.03385, section 4.2)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.registry import register

# Per-channel mean and deviation of the CIFAR-10 training images.
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)


@register("architecture", "resnet")
@dataclass(frozen=True)
class ResNet:
    """Three stages of (depth - 2) / 6 blocks with 16, 32 and 64 times `width` channels."""

    depth: int = 20
    width: int = 1

    def __post_init__(self) -> None:
        if self.depth < 8 or self.depth % 6 != 2 or self.width < 1:
            raise BadRequest(
                f"A ResNet of depth {self.depth} and width {self.width} does not exist: "
                "the depth must be 8, 14, 20, ... (6n + 2) and the width at least 1."
            )

    @property
    def title(self) -> str:
        """The name in tables: `ResNet-20`, or `ResNet-20 x2` when it is twice as wide."""
        return f"ResNet-{self.depth}" + (f" x{self.width}" if self.width > 1 else "")

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        return ResidualNetwork(blocks=(self.depth - 2) // 6, channels=16 * self.width, classes=classes)


class ResidualNetwork(nn.Module):
    """The network of a `ResNet`; it normalises its input."""

    def __init__(self, blocks: int, channels: int, classes: int) -> None:
        super().__init__()
        # Saved with the weights: a hash of the state then also covers the normalisation.
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(3, 1, 1))
        self.mean: Tensor
        self.deviation: Tensor
        self.stem = conv3x3(3, channels)
        self.norm = nn.BatchNorm2d(channels)
        self.stage1 = stage(blocks, channels, channels)
        self.stage2 = stage(blocks, channels, 2 * channels)
        self.stage3 = stage(blocks, 2 * channels, 4 * channels)
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images in [0, 1]."""
        h = self.stem((x - self.mean) / self.deviation)
        h = F.relu(self.norm(h))
        h = self.stage3(self.stage2(self.stage1(h)))
        logits: Tensor = self.head(h.mean((2, 3)))
        return logits


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters (option A of the paper)."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.stride = 1 if channels_in == channels else 2
        self.new_channels = channels - channels_in
        self.conv1 = conv3x3(channels_in, channels, self.stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + residual); where the shape changes, x is subsampled and gets zero channels."""
        h = F.relu(self.norm1(self.conv1(x)))
        h = self.norm2(self.conv2(h))
        if self.stride > 1:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(h + x)


def stage(blocks: int, channels_in: int, channels: int) -> nn.Sequential:
    """Chain blocks; the first one changes the number of channels."""
    return nn.Sequential(Block(channels_in, channels), *(Block(channels, channels) for _ in range(blocks - 1)))


def conv3x3(channels_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    """A padded convolution without bias, since a batch norm follows, initialised for relu."""
    conv = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv
