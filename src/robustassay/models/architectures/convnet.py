"""A plain convolutional network, small and shallow enough for bounds on its outputs to stay tight."""

from dataclasses import dataclass

from torch import nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.layers import Normalise
from robustassay.registry import register


@register("architecture", "convnet")
@dataclass(frozen=True)
class ConvNet:
    """Three convolutions, two of which halve the image, and two dense layers; `width` channels in the first."""

    width: int = 32
    hidden: int = 128

    def __post_init__(self) -> None:
        if self.width < 1 or self.hidden < 1:
            raise BadRequest("A convolutional network needs a width and a hidden size of at least 1.")

    @property
    def title(self) -> str:
        """The name in tables."""
        return "ConvNet-5"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps 32 x 32 images in [0, 1] to one logit per class."""
        c = self.width
        return nn.Sequential(
            Normalise(),
            *block(3, c, stride=2),
            *block(c, 2 * c, stride=1),
            *block(2 * c, 2 * c, stride=2),
            nn.Flatten(),
            nn.Linear(2 * c * 8 * 8, self.hidden),
            nn.BatchNorm1d(self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, classes),
        )


def block(channels_in: int, channels: int, stride: int) -> tuple[nn.Module, ...]:
    """A convolution of the same size, or by 4 x 4 to half the size; batch norm and relu."""
    kernel = 2 + stride
    return nn.Conv2d(channels_in, channels, kernel, stride, padding=1), nn.BatchNorm2d(channels), nn.ReLU()
