"""Convolutions as TensorFlow pads them, and inverted bottlenecks, which several networks for photographs share."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]


class SameConv(nn.Conv2d):
    """A convolution whose output has ceil(side / stride) pixels per side; the odd pixel of padding comes last.

    The side is known when the network is built, so that the padding is a constant and the network can be traced.
    """

    def __init__(self, channels_in: int, channels: int, kernel: int, side: int, stride: int = 1, groups: int = 1):
        missing = max((halved(side, stride) - 1) * stride + kernel - side, 0)
        before, after = missing // 2, missing - missing // 2
        super().__init__(channels_in, channels, kernel, stride, before if before == after else 0, groups=groups)
        self.around = None if before == after else (before, after, before, after)

    def forward(self, x: Tensor) -> Tensor:
        """Pad asymmetrically if necessary, and convolve."""
        return super().forward(x if self.around is None else F.pad(x, self.around))


def halved(side: int, stride: int) -> int:
    """Return the side of an image after a convolution with this stride."""
    return -(-side // stride)


class Bottleneck(nn.Module):
    """Expand, depthwise convolution, optional squeeze-and-excitation, project; add the input if shapes agree."""

    def __init__(
        self,
        channels_in: int,
        channels: int,
        kernel: int,
        stride: int,
        expansion: int,
        side: int,
        activation: Activation,
        squeezed: int = 0,
    ) -> None:
        super().__init__()
        wide = channels_in * expansion
        self.expand = SameConv(channels_in, wide, 1, side) if expansion > 1 else None
        self.dw = SameConv(wide, wide, kernel, side, stride, groups=wide)
        self.se1 = nn.Conv2d(wide, squeezed, 1) if squeezed else None
        self.se2 = nn.Conv2d(squeezed, wide, 1) if squeezed else None
        self.proj = SameConv(wide, channels, 1, halved(side, stride))
        self.activation = activation
        self.adds = stride == 1 and channels_in == channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the block."""
        h = x if self.expand is None else self.activation(self.expand(x))
        h = self.activation(self.dw(h))
        if self.se1 is not None and self.se2 is not None:
            mean = h.mean((2, 3), keepdim=True)
            h = h * torch.sigmoid(self.se2(self.activation(self.se1(mean))))
        narrow: Tensor = self.proj(h)
        return x + narrow if self.adds else narrow


class Chain(nn.Module):
    """A stem, bottlenecks, a last convolution, and a mean over the image, and a head."""

    def __init__(
        self, stem: nn.Module, blocks: list[nn.Module], top: nn.Module, head: nn.Module, activation: Activation
    ):
        super().__init__()
        self.stem, self.blocks, self.top, self.fc = stem, nn.ModuleList(blocks), top, head
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit per class."""
        h = self.activation(self.stem(x))
        for block in self.blocks:
            h = block(h)
        return logits_of(self.fc, self.activation(self.top(h)))


def logits_of(head: nn.Module, features: Tensor) -> Tensor:
    """Average the features over the image and classify them with a linear layer or a 1 x 1 convolution."""
    mean = features.mean((2, 3), keepdim=isinstance(head, nn.Conv2d))
    logits: Tensor = head(mean).flatten(1)
    return logits


class WithoutBackground(nn.Module):
    """Drops the first logit, the background class, of a network with 1,001 classes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the 1,000 classes."""
        logits: Tensor = self.network(x)[:, 1:]
        return logits
