"""A network of Inception modules for 32 x 32 images (after Szegedy et al. 2015, arXiv:1409.4842)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.layers import GlobalMean, Normalise, conv_norm_relu
from robustassay.registry import register


@register("architecture", "inception")
@dataclass(frozen=True)
class Inception:
    """Two convolutions, then two stages of `modules` modules with 4 and 8 times `width` channels."""

    modules: int = 3
    width: int = 32

    def __post_init__(self) -> None:
        if self.modules < 1 or self.width < 4 or self.width % 4:
            raise BadRequest("An Inception network needs at least one module a stage and a width of 4, 8, 12, ...")

    @property
    def title(self) -> str:
        """The name in tables."""
        return "Inception"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        c = self.width
        return nn.Sequential(
            Normalise(),
            conv_norm_relu(3, c, 3),
            conv_norm_relu(c, 2 * c, 3),
            nn.MaxPool2d(3, stride=2, padding=1),
            stage(self.modules, 2 * c, 4 * c),
            nn.MaxPool2d(3, stride=2, padding=1),
            stage(self.modules, 4 * c, 8 * c),
            GlobalMean(),
            nn.Linear(8 * c, classes),
        )


class InceptionModule(nn.Module):
    """Four parallel branches: 1 x 1, 3 x 3 and 5 x 5 convolutions, and a pool."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        quarter, half, eighth = channels // 4, channels // 2, channels // 8
        self.narrow = conv_norm_relu(channels_in, quarter, 1)
        self.middle = nn.Sequential(conv_norm_relu(channels_in, 3 * eighth, 1), conv_norm_relu(3 * eighth, half, 3))
        self.wide = nn.Sequential(conv_norm_relu(channels_in, eighth, 1), conv_norm_relu(eighth, eighth, 5))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_norm_relu(channels_in, eighth, 1))

    def forward(self, h: Tensor) -> Tensor:
        """Return the channels of all four branches."""
        return torch.cat([self.narrow(h), self.middle(h), self.wide(h), self.pooled(h)], 1)


def stage(modules: int, channels_in: int, channels: int) -> nn.Sequential:
    """Chain modules; the first one changes the number of channels."""
    rest = (InceptionModule(channels, channels) for _ in range(modules - 1))
    return nn.Sequential(InceptionModule(channels_in, channels), *rest)
