"""AlexNet at the scale of 32 x 32 images (after Krizhevsky et al. 2012)."""

from dataclasses import dataclass

from torch import nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.layers import Normalise, conv_norm_relu
from robustassay.registry import register


@register("architecture", "alexnet")
@dataclass(frozen=True)
class AlexNet:
    """Five convolutions with overlapping pools and three dense layers; `width` channels in the first.

    Batch norm stands in for local response normalisation and dropout, and every size is cut to fit the images.
    """

    width: int = 48
    hidden: int = 128

    def __post_init__(self) -> None:
        if self.width < 1 or self.hidden < 1:
            raise BadRequest("An AlexNet needs a width and a hidden size of at least 1.")

    @property
    def title(self) -> str:
        """The name in tables."""
        return "AlexNet"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        c, hidden = self.width, self.hidden
        return nn.Sequential(
            Normalise(),
            *conv_norm_relu(3, c, 5),
            overlapping_pool(),
            *conv_norm_relu(c, 2 * c, 5),
            overlapping_pool(),
            *conv_norm_relu(2 * c, 4 * c, 3),
            *conv_norm_relu(4 * c, 2 * c, 3),
            *conv_norm_relu(2 * c, 2 * c, 3),
            overlapping_pool(),
            # Fixes the size of the grid, so that larger images also fit the dense layers.
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            *dense(4 * 4 * 2 * c, hidden),
            *dense(hidden, hidden),
            nn.Linear(hidden, classes),
        )


def overlapping_pool() -> nn.MaxPool2d:
    """Halve the image by maxima over 3 x 3 windows."""
    return nn.MaxPool2d(3, stride=2, padding=1)


def dense(features_in: int, features: int) -> nn.Sequential:
    """A dense layer, batch norm and relu."""
    return nn.Sequential(nn.Linear(features_in, features, bias=False), nn.BatchNorm1d(features), nn.ReLU())
