"""Images as weighted sums of patterns: single pixels, tiles of a coarse grid, or cosine waves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

Patterns = Callable[[int], Tensor]
"""From the length of a side to patterns along it, `[patterns, length]`."""


def pixels(length: int) -> Tensor:
    """Each value by itself."""
    return torch.eye(length)


def cosines(length: int) -> Tensor:
    """Waves of the discrete cosine transform, low frequencies first, each of Euclidean length one."""
    place = torch.arange(length, dtype=torch.float64)
    waves = ((2 * place + 1) * place[:, None] * torch.pi / (2 * length)).cos()
    return (waves / waves.square().sum(1, keepdim=True).sqrt()).float()


def coarse(side: int, mode: str) -> Patterns:
    """Values of a grid of at most `side` per side, interpolated by torch's `nearest` or `linear` mode."""

    def patterns(length: int) -> Tensor:
        if length <= side:
            return pixels(length)
        return F.interpolate(torch.eye(side)[:, None], size=length, mode=mode)[:, 0]

    return patterns


@final
@dataclass(frozen=True)
class PatternBasis:
    """The patterns of an image: per channel, each vertical pattern times each horizontal one."""

    shape: tuple[int, ...]
    channels: int
    down: Tensor
    across: Tensor

    @classmethod
    def of(cls, x: Tensor, patterns: Patterns) -> "PatternBasis":
        """Take leading dimensions as channels; a flat image is a single line."""
        *channels, height, width = (1, 1, *x.shape[1:])
        down, across = (patterns(length).to(x.device) for length in (height, width))
        return cls(tuple(x.shape[1:]), int(torch.tensor(channels).prod()), down, across)

    @property
    def grid(self) -> tuple[int, int, int]:
        """The number of weights: channels, vertical, horizontal."""
        return self.channels, len(self.down), len(self.across)

    @property
    def size(self) -> int:
        """The number of weights in all."""
        return self.channels * len(self.down) * len(self.across)

    def pattern(self, index: Tensor) -> Tensor:
        """Return the patterns of single weights `[rows, k]`."""
        _, rows, columns = self.grid
        channel = index.div(rows * columns, rounding_mode="floor")
        down = self.down[index.div(columns, rounding_mode="floor") % rows]
        plane = down[..., :, None] * self.across[index % columns][..., None, :]
        here = channel[..., None] == torch.arange(self.channels, device=index.device)
        return (here[..., None, None] * plane[:, :, None]).view(*index.shape, *self.shape)

    def paint(self, weights: Tensor) -> Tensor:
        """Return the images of weights `[rows, size]` or `[rows, q, size]`."""
        leading = weights.shape[:-1]
        if self.size == self.channels * self.down.shape[1] * self.across.shape[1]:
            return weights.view(*leading, *self.shape)  # a grid as fine as the image
        grid = weights.view(-1, *self.grid).double()
        planes = self.down.T.double() @ grid @ self.across.double()
        return planes.float().view(*leading, *self.shape)
