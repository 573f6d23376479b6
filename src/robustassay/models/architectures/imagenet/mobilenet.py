"""MobileNet (Howard et al. 2017, arXiv:1704.04861) and MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381)."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.models.architectures.imagenet.layers import Bottleneck, Chain, SameConv, halved, logits_of

# Channels and stride of each pair of a depthwise and a pointwise convolution (Table 1 of the first paper).
PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
# Expansion, channels, repetitions and first stride (Table 2 of the second).
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclass(frozen=True)
class MobileNetV1:
    """Thirteen pairs of convolutions; `width` scales all channels."""

    width: float = 1.0

    def build(self, side: int, classes: int) -> nn.Module:
        """Return a network with fresh weights for images of this size."""
        return DepthwiseNetwork(self.width, side, classes)


@dataclass(frozen=True)
class MobileNetV2:
    """Seventeen inverted bottlenecks."""

    def build(self, side: int, classes: int) -> nn.Module:
        """Return a network with fresh weights for images of this size."""
        before, blocks = 32, []
        stem, side = SameConv(3, before, 3, side, 2), halved(side, 2)
        for expansion, channels, repeats, first in STAGES:
            for stride in (first, *[1] * (repeats - 1)):
                blocks.append(Bottleneck(before, channels, 3, stride, expansion, side, F.relu6))
                before, side = channels, halved(side, stride)
        return Chain(stem, [*blocks], SameConv(before, 1280, 1, side), nn.Conv2d(1280, classes, 1), F.relu6)


class DepthwiseNetwork(nn.Module):
    """The network that a `MobileNetV1` describes."""

    def __init__(self, width: float, side: int, classes: int) -> None:
        super().__init__()
        before = round(32 * width)
        self.stem, side = SameConv(3, before, 3, side, 2), halved(side, 2)
        layers: list[nn.Module] = []
        for channels, stride in PAIRS:
            after = round(channels * width)
            layers.append(SameConv(before, before, 3, side, stride, groups=before))
            side = halved(side, stride)
            layers.append(SameConv(before, after, 1, side))
            before = after
        self.layers = nn.ModuleList(layers)
        self.fc = nn.Conv2d(before, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit per class."""
        h = F.relu6(self.stem(x))
        for layer in self.layers:
            h = F.relu6(layer(h))
        return logits_of(self.fc, h)
