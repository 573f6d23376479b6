"""Places names beside points where they overlap no other name or point."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

Points = npt.NDArray[np.float64]

REACHES: Final = (10.0, 17.0, 26.0, 38.0, 54.0, 72.0)
"""Distances of a name from its point, nearest first, in printer's points."""
POINT_SIZE: Final = 9.0
"""Half the side of the square around a point that is kept free, in pixels."""
LINE_FROM: Final = 26.0
"""A name farther than this from its point gets a thin line to it."""
NEAR: Final = (120.0, 40.0)
"""Width and height of a crowd, in pixels."""
NO_BARS: Final[Points] = np.empty((0, 3))


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
    taken = _taken(axes, points, bars, point_size)
    offsets = _offsets(reaches)

    def write(at: int, dx: float, dy: float) -> "Annotation":
        line = {"arrowstyle": "-", "color": "#999999", "lw": 0.6} if float(np.hypot(dx, dy)) > LINE_FROM else None
        return axes.annotate(
            names[at], (float(named[at, 0]), float(named[at, 1])), (dx, dy), textcoords="offset points", ha=_side(dx),
            va="center", fontsize=8, zorder=4, arrowprops=line,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip

    for at in _crowded_first(axes, named):
        best, least = offsets[-1], np.inf
        for offset in offsets:
            text = write(at, *offset)
            overlap = _overlap(text.get_window_extent(canvas.get_renderer()).padded(1.5), taken, axes.bbox)
            text.remove()
            if overlap < least:
                best, least = offset, overlap
            if overlap == 0:
                break
        taken.append(write(at, *best).get_window_extent(canvas.get_renderer()).padded(1.5))


def _taken(axes: "Axes", points: Points, bars: Points, size: float) -> "list[Bbox]":
    from matplotlib.transforms import Bbox

    to_pixels = axes.transData
    found = [Bbox.from_extents(x - size, y - size, x + size, y + size) for x, y in to_pixels.transform(points)]
    lows, highs = to_pixels.transform(bars[:, :2]), to_pixels.transform(bars[:, ::2])
    return found + [Bbox.from_extents(x - 2, low, x + 2, high) for (x, low), (_, high) in zip(lows, highs, strict=True)]


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


def _overlap(box: "Bbox", taken: "list[Bbox]", inside: "Bbox") -> float:
    """Return the area that a name would share with others and with the outside of the axes, in pixels."""
    from matplotlib.transforms import Bbox

    fits = Bbox.intersection(box, inside)
    outside = box.width * box.height - (fits.width * fits.height if fits else 0.0)
    shared = [Bbox.intersection(box, other) for other in taken]
    return float(round(outside, 6) + sum(both.width * both.height for both in shared if both))
