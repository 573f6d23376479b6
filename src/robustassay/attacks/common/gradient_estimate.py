"""What scores alone tell of a slope: ask along random directions, and weigh each by how far it led to the goal.

Every point is clipped to the pixel box before it is sent. A value on a wall then moves half as often, so its part of
the slope is halved, but keeps its sign. Directions are drawn and asked in blocks of a fixed number, which bounds
memory; sums are taken in float64 and rounded, so that no row depends on how many others are asked with it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.target import ScoreAccess
from robustassay.threat import per_row

BLOCK: Final = 16
"""How many directions of a row are in flight together: whole lanes of a batch, and memory that is reused."""

Draw = Callable[[int], Tensor]
"""From a number of directions to so many a row, `[rows, count, *image]`."""

Rise = Callable[[Tensor], Tensor]
"""From directions `[rows, count, *image]` to the slope along each, `[rows, count]`."""


def blocks(count: int) -> Iterator[int]:
    """Cut a number of directions into blocks."""
    for start in range(0, count, BLOCK):
        yield min(BLOCK, count - start)


def height(view: ScoreAccess, x: Tensor) -> Tensor:
    """Ask how near the goal points are: the logit margin, negated, which no confidence of the model can flatten."""
    return -view.goal.margin(view.scores(x))


def central(view: ScoreAccess, x: Tensor, sigma: float) -> Rise:
    """Ask on both sides of x: two queries a direction."""

    def rise(directions: Tensor) -> Tensor:
        both = sigma * torch.cat((directions, -directions), 1)
        ahead, behind = height(view, (x[:, None] + both).clamp(0, 1)).chunk(2, 1)
        return (ahead - behind) / (2 * sigma)

    return rise


def forward(view: ScoreAccess, x: Tensor, base: Tensor, sigma: float) -> Rise:
    """Ask ahead of x, where the height is known: one query a direction."""

    def rise(directions: Tensor) -> Tensor:
        ahead = height(view, (x[:, None] + sigma * directions).clamp(0, 1))
        return (ahead - base[:, None]) / sigma

    return rise


def slope(rise: Rise, draw: Draw, count: int) -> Tensor:
    """Average directions, each weighted by the slope along it.

    The expectation is C g, for the gradient g and the directions' second moment C: the gradient itself where C = I.
    """
    total: Tensor | float = 0.0
    for n in blocks(count):
        directions = draw(n)
        total = total + (per_row(rise(directions), directions) * directions).sum(1, dtype=torch.float64)
    assert isinstance(total, Tensor)
    return (total / count).float()


def normals(view: ScoreAccess, x: Tensor) -> Draw:
    """Draw directions of independent normal values."""
    rng, shape = view.rng, x.shape[1:]
    return lambda n: rng.normal(n, *shape)


def signs(view: ScoreAccess, x: Tensor) -> Draw:
    """Draw directions of random signs."""
    rng, shape = view.rng, x.shape[1:]
    return lambda n: rng.rademacher(n, *shape)


def sphere(view: ScoreAccess, x: Tensor) -> Draw:
    """Draw directions uniformly, all of mean square one."""
    draw = normals(view, x)
    return lambda n: on_sphere(draw(n))


def on_sphere(directions: Tensor) -> Tensor:
    """Scale directions `[rows, count, *image]` so that the mean of their squares is one."""
    mean = directions.flatten(2).square().mean(-1, dtype=torch.float64)
    return directions / per_row(mean.sqrt().clamp(min=1e-30).float(), directions)


# ---------------------------------------------------------------- images made of fewer, or other, patterns

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
    """Values of a grid of at most so many a side, spread over the image in torch's `nearest` or `linear` way."""

    def patterns(length: int) -> Tensor:
        if length <= side:
            return pixels(length)
        return F.interpolate(torch.eye(side)[:, None], size=length, mode=mode)[:, 0]

    return patterns


@final
@dataclass(frozen=True)
class Span:
    """Images as sums of patterns: channel by channel, one pattern down times one across."""

    shape: tuple[int, ...]
    channels: int
    down: Tensor
    across: Tensor

    @classmethod
    def of(cls, x: Tensor, patterns: Patterns) -> "Span":
        """Read leading dimensions as channels, so a flat image is a single line."""
        *channels, height, width = (1, 1, *x.shape[1:])
        down, across = (patterns(length).to(x.device) for length in (height, width))
        return cls(tuple(x.shape[1:]), int(torch.tensor(channels).prod()), down, across)

    @property
    def grid(self) -> tuple[int, int, int]:
        """How many weights there are: channels, down, across."""
        return self.channels, len(self.down), len(self.across)

    @property
    def size(self) -> int:
        """How many weights there are in all."""
        return self.channels * len(self.down) * len(self.across)

    def pattern(self, index: Tensor) -> Tensor:
        """Return the images that belong to single weights `[rows, k]`."""
        _, rows, columns = self.grid
        channel = index.div(rows * columns, rounding_mode="floor")
        down = self.down[index.div(columns, rounding_mode="floor") % rows]
        plane = down[..., :, None] * self.across[index % columns][..., None, :]
        here = channel[..., None] == torch.arange(self.channels, device=index.device)
        return (here[..., None, None] * plane[:, :, None]).view(*index.shape, *self.shape)

    def paint(self, weights: Tensor) -> Tensor:
        """Return the images with weights `[rows, size]` or `[rows, q, size]`."""
        leading = weights.shape[:-1]
        if self.size == self.channels * self.down.shape[1] * self.across.shape[1]:
            return weights.view(*leading, *self.shape)  # a grid as fine as the image
        grid = weights.view(-1, *self.grid).double()
        planes = self.down.T.double() @ grid @ self.across.double()
        return planes.float().view(*leading, *self.shape)
