"""MobileNet at the scale of 32 x 32 images (Howard et al. 2017, arXiv:1704.04861)."""

from dataclasses import dataclass

from torch import nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.layers import GlobalMean, Normalise, conv_norm_relu
from robustassay.registry import register

STEM = 32
# Channels and stride of each block, as in the paper's Table 1 but halving the image three times instead of five.
BLOCKS = ((64, 1), (128, 1), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


@register("architecture", "mobilenet")
@dataclass(frozen=True)
class MobileNet:
    """Depthwise convolutions, each followed by a pointwise one; `width` scales all channels of the paper."""

    width: float = 0.5

    def __post_init__(self) -> None:
        if self.scaled(STEM) < 1:
            raise BadRequest(f"A MobileNet of width {self.width} has no channels: the width must be 1/32 or more.")

    @property
    def title(self) -> str:
        """The name in tables: `MobileNet x0.5`."""
        return f"MobileNet x{self.width:g}"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        before = self.scaled(STEM)
        layers: list[nn.Module] = [Normalise(), conv_norm_relu(3, before, 3)]
        for channels, stride in BLOCKS:
            after = self.scaled(channels)
            layers += [conv_norm_relu(before, before, 3, stride, groups=before), conv_norm_relu(before, after, 1)]
            before = after
        return nn.Sequential(*layers, GlobalMean(), nn.Linear(before, classes))

    def scaled(self, channels: int) -> int:
        """Return how many of the paper's channels this width keeps."""
        return int(channels * self.width)
