"""Places names beside points where they overlap no other name or point; in a crowd, where they overlap least."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = npt.NDArray[np.float64]

REACHES: Final = (10.0, 17.0, 26.0, 38.0, 54.0, 72.0)
"""Distances of a name from its point, nearest first, in printer's points."""
POINT_SIZE: Final = 9.0
"""Half the side of the square around a point that is kept free, in pixels."""
BAR_SIZE: Final = 2.0
"""The same around a bar."""
LINE_FROM: Final = 26.0
"""A name farther than this from its point gets a thin line to it."""
NEAR: Final = (120.0, 40.0)
"""Width and height of a crowd, in pixels."""
NO_BARS: Final[Points] = np.empty((0, 3))

OUTSIDE, NAME, POINT, LINE, BAR, OTHER_POINT = 1000.0, 200.0, 60.0, 6.0, 2.0, 3.0
"""What a place costs outside the axes, for each thing that a name lies on, and nearer to another point than its own."""
FAR: Final = 0.1
"""The cost of one printer's point of distance: a near place on a bar costs less than a far one."""


def place_names(
    figure: "Figure",
    axes: "Axes",
    points: Points,
    named: Points,
    names: Sequence[str],
    bars: Points = NO_BARS,
    reaches: Sequence[float] = REACHES,
    point_size: float = POINT_SIZE,
) -> None:
    """Write each name beside its point; all `points` and vertical `bars` (x, low, high) are kept free of names.

    Names of crowded points are placed first, as they have the fewest places. Where none is free, the place that
    overlaps the least is taken: no name is left out.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patheffects import withStroke

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    taken = _Taken.of(axes, points, bars, point_size)
    offsets = _offsets(reaches)
    for number in _crowded_first(axes, named):
        (x, y), name = named[number], names[number]
        text = axes.annotate(
            name, (float(x), float(y)), offsets[0], textcoords="offset points", va="center", fontsize=8, zorder=4,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip
        box = text.get_window_extent(canvas.get_renderer())
        text.remove()
        at = axes.transData.transform((float(x), float(y)))
        places = [_Place(at, offset, (box.width, box.height), figure.dpi / 72) for offset in offsets]
        best = min(places, key=taken.cost)  # no name is left out
        taken.add(best)
        line = {"arrowstyle": "-", "color": "#999999", "lw": 0.6} if best.has_line else None
        axes.annotate(
            name, (float(x), float(y)), best.offset, textcoords="offset points", ha=_side(best.offset[0]), va="center",
            fontsize=8, zorder=4, arrowprops=line, path_effects=[withStroke(linewidth=2.5, foreground="white")],
        ).set_in_layout(False)  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class _Place:
    """One place of a name, in pixels."""

    point: Points
    offset: tuple[float, float]  # in printer's points
    size: tuple[float, float]
    scale: float  # pixels per printer's point

    @property
    def reach(self) -> float:
        return float(np.hypot(*self.offset))

    @property
    def has_line(self) -> bool:
        return self.reach > LINE_FROM

    @property
    def anchor(self) -> Points:
        return self.point + self.scale * np.array(self.offset)

    @property
    def box(self) -> Points:
        """Left, bottom, right, top."""
        (x, y), (width, height) = self.anchor, self.size
        left = x - {"left": 0.0, "center": width / 2, "right": width}[_side(self.offset[0])]
        return np.array((left - 2, y - height / 2 - 1, left + width + 2, y + height / 2 + 1))

    @property
    def line(self) -> Points:
        """Small boxes along the line from the point to the name."""
        if not self.has_line:
            return np.empty((0, 4))
        along = np.linspace(0.25, 0.95, 8)[:, None]
        middles = self.point + along * (self.anchor - self.point)
        return np.hstack((middles - 1, middles + 1))


@final
@dataclass(eq=False)
class _Taken:
    """Boxes that names are kept from."""

    inside: Points
    points: Points
    bars: Points
    middles: Points
    names: Points = field(default_factory=lambda: np.empty((0, 4)))
    lines: Points = field(default_factory=lambda: np.empty((0, 4)))

    @classmethod
    def of(cls, axes: "Axes", points: Points, bars: Points, size: float) -> "_Taken":
        to_pixels, frame = axes.transData, axes.bbox
        middles = to_pixels.transform(points)
        lows, highs = to_pixels.transform(bars[:, :2]), to_pixels.transform(bars[:, ::2])
        lows[:, 0] -= BAR_SIZE
        highs[:, 0] += BAR_SIZE
        inside = np.array((frame.x0, frame.y0, frame.x1, frame.y1))
        around = np.hstack((middles - size, middles + size))
        return cls(inside, around, np.hstack((lows, highs)), middles)

    def cost(self, place: _Place) -> float:
        """Add up what the place lies on."""
        box, low, high = place.box, self.inside[:2], self.inside[2:]
        fits = bool((box[:2] >= low).all() and (box[2:] <= high).all())
        on = NAME * _count(box, self.names) + POINT * _count(box, self.points)
        on += LINE * _count(box, self.lines) + BAR * _count(box, self.bars)
        others = self.points[(self.middles != place.point).any(axis=1)]
        crossed = sum(bool(_count(part, self.names) + _count(part, others)) for part in place.line)
        return OUTSIDE * (not fits) + on + LINE * crossed + OTHER_POINT * self._misleads(place) + FAR * place.reach

    def _misleads(self, place: _Place) -> bool:
        """Say whether a name without a line is nearer to another point than to its own."""
        if place.has_line:
            return False
        box = place.box
        away = np.linalg.norm(self.middles - np.clip(self.middles, box[:2], box[2:]), axis=1)
        own = float(np.linalg.norm(place.point - np.clip(place.point, box[:2], box[2:])))
        return bool((away < own - 1).any())

    def add(self, place: _Place) -> None:
        """Keep other names from this one."""
        self.names = np.vstack((self.names, place.box))
        self.lines = np.vstack((self.lines, place.line))


def _count(box: Points, others: Points) -> int:
    over = (others[:, :2] < box[2:]).all(axis=1) & (others[:, 2:] > box[:2]).all(axis=1)
    return int(over.sum())


def _offsets(reaches: Sequence[float]) -> list[tuple[float, float]]:
    turns = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    return [(float(reach * np.cos(turn)), float(reach * np.sin(turn))) for reach in reaches for turn in turns]


def _side(dx: float) -> Literal["left", "center", "right"]:
    return "left" if dx > 4 else "right" if dx < -4 else "center"


def _crowded_first(axes: "Axes", named: Points) -> list[int]:
    """Order points by the number of others within a name's reach, the most first."""
    at = axes.transData.transform(named)
    near = (np.abs(at[:, None] - at) < NEAR).all(2).sum(1)
    return [int(index) for index in np.argsort(-near, kind="stable")]
