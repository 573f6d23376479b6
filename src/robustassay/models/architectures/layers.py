"""Layers that several architectures share."""

import torch
from torch import Tensor, nn

from robustassay.models.architectures.resnet import DEVIATION, MEAN


class Normalise(nn.Module):
    """Normalises images in [0, 1] by mean and deviation."""

    def __init__(self) -> None:
        super().__init__()
        # Saved with the weights: a hash of the state then also covers the normalisation.
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(3, 1, 1))
        self.mean: Tensor
        self.deviation: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised images."""
        return (x - self.mean) / self.deviation


class GlobalMean(nn.Module):
    """Averages every channel over the image."""

    def forward(self, h: Tensor) -> Tensor:
        """Return one number per channel."""
        return h.mean((2, 3))


def conv(channels_in: int, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A padded convolution without bias, since a batch norm follows, initialised for relu."""
    made = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    fan_out = channels // groups * kernel * kernel
    nn.init.normal_(made.weight, std=(2 / fan_out) ** 0.5)
    return made


def conv_norm_relu(channels_in: int, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution, batch norm and relu."""
    return nn.Sequential(conv(channels_in, channels, kernel, stride, groups), nn.BatchNorm2d(channels), nn.ReLU())
