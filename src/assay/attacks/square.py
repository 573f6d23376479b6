"""Square Attack."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.attacks.attack import Attack
from assay.registry import register
from assay.rng import Streams
from assay.target import ScoreBox
from assay.threat import L1, L2, LInf, per_row

HALVINGS: Final = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""The area of the window is halved after so many queries, of the 10 000 its authors thought of."""


@final
@register("attack", "square")
@dataclass(frozen=True)
class Square(Attack[ScoreBox]):
    """Random search over square windows (Andriushchenko et al. 2020, arXiv:1912.00049; L1: arXiv:2103.01208).

    One new window a query, kept where it lowers the goal's margin; that is the loss for targeted goals too, where
    the authors take cross-entropy. `steps` counts all queries of a row, the start and the last look included.
    Window, signs and decision belong to the row. Images are read as channels of rows of values, so a flat one is a
    single row; a window too large for one side of the image is cut on that side only.
    """

    access = ScoreBox
    norms = (LInf, L2, L1)

    steps: int = 5000
    p_init: float = 0.8
    rescale_schedule: bool = False

    def __call__(self, view: ScoreBox, x0: Tensor) -> Tensor:
        """Propose, ask, keep what is better."""
        canvas = _Canvas.of(x0)
        start, propose = _SEARCHES[type(view.ball.norm)]
        x, lowest = x0, x0.new_full((len(x0),), torch.inf)
        x_new = start(view, canvas)
        for query in range(1, self.steps):
            margin = view.goal.margin(view.scores(x_new))
            better = margin < lowest
            x = torch.where(per_row(better, x), x_new, x)
            x, lowest = view.keep(x, torch.where(better, margin, lowest))
            x_new = propose(view, canvas, x, self._area(query - 1))
        return x_new

    def _area(self, proposals: int) -> float:
        """Part of the image that the window covers after so many proposals."""
        if self.rescale_schedule:
            proposals = proposals * 10_000 // self.steps
        return self.p_init / 2.0 ** bisect_left(HALVINGS, proposals)


@final
@dataclass(frozen=True)
class _Canvas:
    """Images seen as planes `[rows, channels, height, width]`."""

    channels: int
    height: int
    width: int
    device: torch.device

    @classmethod
    def of(cls, x: Tensor) -> "_Canvas":
        """Read leading dimensions as channels."""
        *channels, height, width = (1, 1, *x.shape[1:])
        return cls(math.prod(channels), height, width, x.device)

    def planes(self, x: Tensor) -> Tensor:
        """Show images as planes."""
        return x.reshape(len(x), self.channels, self.height, self.width)

    def sides(self, area: float, least: int, odd: bool) -> tuple[int, int]:
        """Height and width of a window that covers so much of a plane."""
        side = max(round(math.sqrt(area * self.height * self.width)), least)
        side += odd and side % 2 == 0
        return min(side, self.height), min(side, self.width)

    def windows(self, rng: Streams, sides: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Draw a place for a window in each row; return the height and width of every value above its corner."""
        top = rng.integers(self.height - sides[0] + 1)
        left = rng.integers(self.width - sides[1] + 1)
        down = torch.arange(self.height, device=self.device) - top[:, None]
        right = torch.arange(self.width, device=self.device) - left[:, None]
        return down[:, None, :, None], right[:, None, None, :]


def _inside(window: tuple[Tensor, Tensor], sides: tuple[int, int]) -> Tensor:
    """Say which values `[rows, 1, height, width]` lie in the window."""
    down, right = window
    return (down >= 0) & (down < sides[0]) & (right >= 0) & (right < sides[1])


def _image(view: ScoreBox, delta: Tensor) -> Tensor:
    """Bring perturbed planes back into the ball."""
    centre = view.ball.centre
    return view.ball.project(centre + delta.reshape(centre.shape))


# ---------------------------------------------------------------- Linf: every value at a corner of the ball


def _stripes(view: ScoreBox, canvas: _Canvas) -> Tensor:
    """Start from vertical stripes, one sign a channel and column."""
    signs = view.rng.rademacher(canvas.channels, 1, canvas.width)
    stripes = signs * view.ball.eps.view(-1, 1, 1, 1)
    return _image(view, stripes.expand(-1, -1, canvas.height, -1))


def _repaint(view: ScoreBox, canvas: _Canvas, x: Tensor, area: float) -> Tensor:
    """Move a window to one corner of the ball, by a sign a channel."""
    sides = canvas.sides(area, least=1, odd=False)
    inside = _inside(canvas.windows(view.rng, sides), sides)
    signs = view.rng.rademacher(canvas.channels, 1, 1)
    move = 2 * view.ball.eps.view(-1, 1, 1, 1) * signs * inside
    return view.ball.project(x + move.reshape(x.shape))


# ---------------------------------------------------------------- L2 and L1: bumps that trade their size


@final
@dataclass(frozen=True)
class _Bumps:
    """Perturbations made of bumps, whose mass, the sum of |value|^order, moves from window to window.

    L1 writes more than it has into a window, `crowded`, and leaves it to the projection to keep the peaks.
    """

    order: int
    decay: int
    crowded: bool

    def start(self, view: ScoreBox, canvas: _Canvas) -> Tensor:
        """Tile the image with bumps, five by five where it is large enough."""
        c, h, w = canvas.channels, canvas.height, canvas.width
        sides = max(h // 5, 1), max(w // 5, 1)
        down, across = h // sides[0], w // sides[1]
        turned = view.rng.integers(2, down, across)
        signs = view.rng.rademacher(c, down, across)
        tiles = _bump(*sides, self).to(signs)[turned][:, None] * signs[..., None, None]
        field = tiles.transpose(3, 4).reshape(len(tiles), c, down * sides[0], across * sides[1])
        top, left = (h - field.shape[2]) // 2, (w - field.shape[3]) // 2
        field = F.pad(field, (left, w - field.shape[3] - left, top, h - field.shape[2] - top))
        if not self.crowded:
            field = self.unit(field.flatten(1)[:, None, None]).view_as(field) * view.ball.eps.view(-1, 1, 1, 1)
        return _image(view, field)

    def trade(self, view: ScoreBox, canvas: _Canvas, x: Tensor, area: float) -> Tensor:
        """Add a bump to one window, and to its size what a second window and the pixel box left unused."""
        sides = canvas.sides(area, least=3, odd=True)
        here, there = canvas.windows(view.rng, sides), canvas.windows(view.rng, sides)
        inside, either = _inside(here, sides), _inside(here, sides) | _inside(there, sides)
        delta = canvas.planes(x - view.ball.centre)
        bump = self.unit(delta * inside) + self.stamp(view.rng, canvas, here, sides) * inside
        whole = view.ball.eps.double().view(-1, 1, 1, 1) ** self.order
        spare = (whole - self.mass(delta).sum(1, keepdim=True)).clamp(min=0)
        size = self.root(spare / canvas.channels + self.mass(delta * either)).to(delta.dtype)
        if self.crowded:
            size = size * canvas.channels
        return _image(view, delta.masked_fill(either, 0) + self.unit(bump) * size)

    def stamp(self, rng: Streams, canvas: _Canvas, window: tuple[Tensor, Tensor], sides: tuple[int, int]) -> Tensor:
        """Put a bump, upright or lying, with a sign a channel, where each row has its window."""
        down, right = window[0].clamp(0, sides[0] - 1), window[1].clamp(0, sides[1] - 1)
        turned = rng.integers(2)[:, None, None, None]
        signs = rng.rademacher(canvas.channels, 1, 1)
        return _bump(*sides, self).to(signs)[turned, down, right] * signs

    def mass(self, planes: Tensor) -> Tensor:
        """Sum |value|^order over each plane, in float64."""
        powers = planes.square() if self.order == 2 else planes.abs()
        return powers.sum((-2, -1), keepdim=True, dtype=torch.float64)

    def root(self, mass: Tensor) -> Tensor:
        """Norm of a plane from its mass."""
        return mass.sqrt() if self.order == 2 else mass

    def unit(self, planes: Tensor) -> Tensor:
        """Scale each plane to norm one; an empty one stays empty."""
        return planes / self.root(self.mass(planes)).to(planes.dtype).clamp(min=1e-12)


@lru_cache(maxsize=64)
def _bump(height: int, width: int, kind: _Bumps) -> Tensor:
    """Two opposite peaks side by side, of norm one: one above the other, and turned, `[2, height, width]`."""
    upright, lying = _two_peaks(height, width, kind), _two_peaks(width, height, kind).T
    both = torch.stack((upright if height > 1 else lying, lying if width > 1 else upright))
    return kind.unit(both).float()


def _two_peaks(height: int, width: int, kind: _Bumps) -> Tensor:
    """A peak in the upper half and its opposite in the lower."""
    if height == 1:
        return _peak(height, width, kind)
    halves = (_peak(height // 2, width, kind), -_peak(height - height // 2, width, kind))
    return torch.cat([kind.unit(half) for half in halves])


def _peak(height: int, width: int, kind: _Bumps) -> Tensor:
    """A sum of concentric squares, each weighted by its radius to the power -decay."""
    far_down = (torch.arange(height) - height // 2).abs()
    far_right = (torch.arange(width) - width // 2).abs()
    distance = torch.maximum(far_down[:, None], far_right)
    weights = torch.arange(1, int(distance.max()) + 2).double() ** -kind.decay
    return weights.flip(0).cumsum(0).flip(0)[distance]


_L2_BUMPS: Final = _Bumps(order=2, decay=2, crowded=False)
_L1_BUMPS: Final = _Bumps(order=1, decay=4, crowded=True)

Start = Callable[[ScoreBox, _Canvas], Tensor]
Propose = Callable[[ScoreBox, _Canvas, Tensor, float], Tensor]

_SEARCHES: Final[dict[type, tuple[Start, Propose]]] = {
    LInf: (_stripes, _repaint),
    L2: (_L2_BUMPS.start, _L2_BUMPS.trade),
    L1: (_L1_BUMPS.start, _L1_BUMPS.trade),
}
