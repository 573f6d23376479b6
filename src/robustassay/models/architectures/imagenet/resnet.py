"""ResNet-34 (He et al. 2016, arXiv:1512.03385) as dlib has it: convolutions are unpadded where images shrink."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Channels and blocks of each stage; all but the first stage halve the image.
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


@dataclass(frozen=True)
class DlibResNet34:
    """Sixteen blocks of two convolutions."""

    def build(self, side: int, classes: int) -> nn.Module:
        """Return a network with fresh weights, for images of any size."""
        return DlibNetwork(classes)


class DlibNetwork(nn.Module):
    """The network; batch norms are folded into one gain and one shift per channel."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.aff1 = nn.Conv2d(3, 64, 7, 2), Affine(64)
        before, blocks = 64, []
        for channels, repeats in STAGES:
            for _ in range(repeats):
                blocks.append(Block(before, channels))
                before = channels
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit per class."""
        h = F.max_pool2d(F.relu(self.aff1(self.conv1(x))), 3, 2)
        logits: Tensor = self.fc(self.blocks(h).mean((2, 3)))
        return logits


class Affine(nn.Module):
    """One gain and one shift per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift."""
        return x * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.halves = channels_in != channels
        self.new_channels = channels - channels_in
        self.conv1 = (
            nn.Conv2d(channels_in, channels, 3, 2, 0) if self.halves else nn.Conv2d(channels, channels, 3, 1, 1)
        )
        self.aff1, self.conv2, self.aff2 = Affine(channels), nn.Conv2d(channels, channels, 3, 1, 1), Affine(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut; if the size is halved, the shortcut is average-pooled and padded with zero channels.

        The unpadded convolution may be a row and a column short of those means: zeros stand for what is missing.
        """
        h = self.aff2(self.conv2(F.relu(self.aff1(self.conv1(x)))))
        if self.halves:
            x = F.pad(F.avg_pool2d(x, 2, 2), (0, 0, 0, 0, 0, self.new_channels))
            h = F.pad(h, (0, x.shape[3] - h.shape[3], 0, x.shape[2] - h.shape[2]))
        return F.relu(x + h)
