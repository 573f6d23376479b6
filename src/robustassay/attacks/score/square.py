"""Square Attack."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Final, Protocol, final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.random_search import RandomSearch
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L1, L2, LInf

HALVINGS: Final = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Queries after which the area of the window is halved, in the authors' schedule of 10 000."""

AHEAD: Final = 50
"""Proposals drawn at once for small images: one by one they cost as much as a small model."""

LARGE: Final = 1 << 18
"""The most values drawn at once per row: for large images fewer proposals are drawn at once."""
BITS: Final = 24
"""Bits of each random number that chooses a place."""


@final
@register("attack", "square")
@dataclass(frozen=True)
class Square(Attack[ScoreAccess]):
    """Random search over square windows (Andriushchenko et al. 2020, arXiv:1912.00049; L1: arXiv:2103.01208).

    One new window per query, kept where it lowers the goal's margin, also for targeted goals, where the authors use
    cross-entropy. Under a query budget below `steps`, the schedule is fitted to the budget. Images cut the windows.
    """

    info = AttackInfo(
        papers=("1912.00049", "2103.01208"),
        formula="x' = P(x with +-eps, one sign per channel, on a random square that covers a part p of it)\n"
        "keep x' if m(x') < m(x)\n"
        "p falls from p_init by halves; under L2 and L1 bumps of the norm that is left move between windows",
        reference="max-andr/square-attack, fra31/auto-attack",
    )
    access = ScoreAccess
    norms = (LInf, L2, L1)

    steps: int = 5000
    """Queries per sample, at most, the start and the last point included."""
    p_init: float = 0.8
    """First part of the image that a window covers."""
    rescale_schedule: bool = False
    """Whether windows shrink in proportion to `steps` instead of by the authors' schedule."""
    restarts: int = 1

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Propose, query, keep what is better."""
        grid, proposals = _Grid.of(x0), _PROPOSALS[type(view.ball.norm)]
        schedule, last = self._fitted(view.query_budget), self.steps - 2
        start = proposals.start(view, grid)
        if last < 0:
            return start
        search, plan, turn, area = RandomSearch(view, start), [x0], 0, 1.0
        for first in range(0, last + 1, grid.ahead):
            areas = [schedule._area(first + later) for later in range(grid.ahead)]
            plan = [*proposals.plan(view, grid, areas)]
            turn = min(last - first, grid.ahead)  # the last point of all is returned: the evaluation asks about it
            for turns, area in _runs(areas[:turn]):
                plan = search.try_in_turn(partial(proposals.propose, grid, area), plan, turns)
        area = schedule._area(last)
        return proposals.propose(grid, area, view, [part[:, turn, None] for part in plan], search.x).squeeze(1)

    def _fitted(self, budget: int | None) -> "Square":
        """Return the attack whose schedule ends with the budget, if that is shorter."""
        if budget is None or budget >= self.steps:
            return self
        return replace(self, steps=budget, rescale_schedule=True)

    def _area(self, proposals: int) -> float:
        """Part of the image that the window covers after so many proposals."""
        if self.rescale_schedule:
            proposals = proposals * 10_000 // self.steps
        return self.p_init / 2.0 ** bisect_left(HALVINGS, proposals)


def _runs(areas: Sequence[float]) -> Iterator[tuple[range, float]]:
    """Yield every area with the turns at which it stands."""
    start = 0
    for area, equal in groupby(areas):
        stop = start + sum(1 for _ in equal)
        yield range(start, stop), area
        start = stop


Side = int | Tensor


class _Proposals(Protocol):
    """The proposals of one norm."""

    def start(self, view: ScoreAccess, grid: "_Grid") -> Tensor:
        """Return the first points."""

    def plan(self, view: ScoreAccess, grid: "_Grid", areas: Sequence[float]) -> tuple[Tensor, ...]:
        """Draw the random numbers of proposals with windows of these areas, `[rows, areas, ...]`."""

    def propose(self, grid: "_Grid", area: float, view: ScoreAccess, plan: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the points `[rows, k, ...]` that k plans make of each x."""


@final
@dataclass(frozen=True)
class _Grid:
    """Images seen as planes `[rows, channels, height, width]`."""

    channels: int
    height: int
    width: int
    down: Tensor
    right: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "_Grid":
        """Read leading dimensions as channels."""
        *channels, height, width = (1, 1, *x.shape[1:])
        down, right = (torch.arange(side, device=x.device) for side in (height, width))
        return cls(math.prod(channels), height, width, down[:, None], right)

    def planes(self, x: Tensor) -> Tensor:
        """Show images as planes."""
        return x.reshape(len(x), self.channels, self.height, self.width)

    @property
    def ahead(self) -> int:
        """How many proposals to plan at once."""
        return max(1, min(AHEAD, LARGE // (self.channels * self.height * self.width)))

    def sides(self, area: float, least: int, odd: bool) -> tuple[int, int]:
        """Height and width of a window that covers so much of a plane."""
        side = max(round(math.sqrt(area * self.height * self.width)), least)
        side += odd and side % 2 == 0
        return min(side, self.height), min(side, self.width)

    def window(self, numbers: Tensor, heights: Side, widths: Side) -> tuple[Tensor, Tensor]:
        """Place a window by two numbers; return how far each value is below and right of its corner."""
        top = _choose(numbers[..., 0], self.height + 1 - heights)
        left = _choose(numbers[..., 1], self.width + 1 - widths)
        return self.down - top[..., None, None, None], self.right - left[..., None, None, None]


def _choose(number: Tensor, among: Side) -> Tensor:
    """Turn a random number into an integer from 0 to among - 1."""
    return (number * among) >> BITS


def _inside(window: tuple[Tensor, Tensor], heights: Side, widths: Side) -> Tensor:
    """Return which values `[..., 1, height, width]` lie in the window."""
    down, right = window
    return (down >= 0) & (down < heights) & (right >= 0) & (right < widths)


def _image(view: ScoreAccess, delta: Tensor) -> Tensor:
    """Bring perturbed planes `[rows, channels, ...]`, or `[rows, k, channels, ...]`, back into the ball."""
    centre = view.ball.centre
    if delta.dim() == 4:
        return view.ball.project(centre + delta.reshape(centre.shape))
    return view.ball.project(centre[:, None] + delta.reshape(*delta.shape[:2], *centre.shape[1:]))


# ---------------------------------------------------------------- Linf: every value at a corner of the ball


class _Corners:
    """Moves one window at a time to a corner of the ball."""

    def start(self, view: ScoreAccess, grid: _Grid) -> Tensor:
        """Start from vertical stripes, one sign per channel and column."""
        signs = view.rng.rademacher(grid.channels, 1, grid.width)
        stripes = signs * view.ball.eps.view(-1, 1, 1, 1)
        return _image(view, stripes.expand(-1, -1, grid.height, -1))

    def plan(self, view: ScoreAccess, grid: _Grid, areas: Sequence[float]) -> tuple[Tensor, ...]:
        """Draw windows and signs, and return the moves."""
        sides = [grid.sides(area, least=1, odd=False) for area in areas]
        heights, widths = grid.down.new_tensor(sides).unbind(1)
        window = grid.window(view.rng.integers(1 << BITS, len(areas), 2), heights, widths)
        inside = _inside(window, heights.view(-1, 1, 1, 1), widths.view(-1, 1, 1, 1))
        signs = view.rng.rademacher(len(areas), grid.channels, 1, 1)
        return (2 * view.ball.eps.view(-1, 1, 1, 1, 1) * signs * inside,)

    def propose(self, grid: _Grid, area: float, view: ScoreAccess, plan: Sequence[Tensor], x: Tensor) -> Tensor:
        """Add the moves and project into the ball."""
        moves = plan[0]
        return view.ball.project(x[:, None] + moves.reshape(*moves.shape[:2], *x.shape[1:]))


# ---------------------------------------------------------------- L2 and L1: bumps (the paper's eta) that move norm


@final
@dataclass(frozen=True)
class _Bumps:
    """Perturbations made of bumps, whose mass, the sum of |value|^order, moves from window to window.

    Under L1, `crowded`, a window gets more norm than is left, and the projection keeps its peaks.
    """

    order: int
    decay: int
    crowded: bool

    def start(self, view: ScoreAccess, grid: _Grid) -> Tensor:
        """Tile the image with bumps, five by five where it is large enough."""
        c, h, w = grid.channels, grid.height, grid.width
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

    def plan(self, view: ScoreAccess, grid: _Grid, areas: Sequence[float]) -> tuple[Tensor, ...]:
        """Draw numbers for two windows and a turn, and signs."""
        numbers = view.rng.integers(1 << BITS, len(areas), 5)
        return numbers, view.rng.rademacher(len(areas), grid.channels, 1, 1)

    def propose(self, grid: _Grid, area: float, view: ScoreAccess, plan: Sequence[Tensor], x: Tensor) -> Tensor:
        """Add a bump to one window, and to its size what a second window and the pixel box left unused."""
        numbers, signs = plan
        sides = grid.sides(area, least=3, odd=True)
        here, there = grid.window(numbers, *sides), grid.window(numbers[..., 2:], *sides)
        inside = _inside(here, *sides)
        either = inside | _inside(there, *sides)
        delta = grid.planes(x - view.ball.centre)[:, None]
        bump = self.unit(delta * inside) + self.stamp(_choose(numbers[..., 4], 2), signs, here, sides) * inside
        whole = view.ball.eps.double().view(-1, 1, 1, 1, 1) ** self.order
        spare = (whole - self.mass(delta).sum(-3, keepdim=True)).clamp(min=0)
        size = self.root(spare / grid.channels + self.mass(delta * either)).to(delta.dtype)
        if self.crowded:
            size = size * grid.channels
        return _image(view, delta.masked_fill(either, 0) + self.unit(bump) * size)

    def stamp(self, turned: Tensor, signs: Tensor, window: tuple[Tensor, Tensor], sides: tuple[int, int]) -> Tensor:
        """Place a bump, upright or turned, with one sign per channel, in each window."""
        down, right = window[0].clamp(0, sides[0] - 1), window[1].clamp(0, sides[1] - 1)
        return _bump(*sides, self).to(signs)[turned[..., None, None, None], down, right] * signs

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

_PROPOSALS: Final[dict[type, _Proposals]] = {LInf: _Corners(), L2: _L2_BUMPS, L1: _L1_BUMPS}
