"""SqueezeNet 1.1 (Iandola et al. 2016, arXiv:1602.07360), trained in caffe on images with the blue channel first."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Channels before, squeezed and expanded (of each kind) of the fire modules; None stands for pooling.
FIRES = (
    (64, 16, 64), (128, 16, 64), None,
    (128, 32, 128), (256, 32, 128), None,
    (256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256),
)  # fmt: skip


@dataclass(frozen=True)
class SqueezeNet:
    """Eight fire modules."""

    def build(self, side: int, classes: int) -> nn.Module:
        """Return a network with fresh weights, for images of any size."""
        return FireNetwork(classes)


class FireNetwork(nn.Module):
    """The network, for images with the red channel first."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU(), _pool()]
        layers += [_pool() if fire is None else Fire(*fire) for fire in FIRES]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(512, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit per class; none is negative, because the last layer has a relu."""
        return F.relu(self.classifier(self.features(x.flip(1)))).mean((2, 3))


class Fire(nn.Module):
    """A fire module: a 1 x 1 convolution to few channels, then 1 x 1 and 3 x 3 convolutions to many."""

    def __init__(self, channels_in: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels_in, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the channels of both kinds."""
        h = F.relu(self.squeeze(x))
        return torch.cat((F.relu(self.expand1x1(h)), F.relu(self.expand3x3(h))), 1)


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)
