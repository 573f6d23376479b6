"""Places names beside points where they overlap no other name or point."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

Points = npt.NDArray[np.float64]

REACHES: Final = (10.0, 17.0, 26.0, 38.0, 54.0, 72.0)
"""Distances of a name from its point, nearest first, in printer's points."""
POINT_SIZE: Final = 9.0
"""Half the side of the square around a point that is kept free, in pixels."""
LINE_FROM: Final = 26.0
"""A name farther than this from its point gets a thin line to it."""
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
    """Write each name beside its point; all `points` and vertical `bars` (x, low, high) are kept free of names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patheffects import withStroke

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    taken = _taken(axes, points, bars, point_size)
    offsets = _offsets(reaches)
    for (x, y), name in zip(named, names, strict=True):
        for dx, dy in offsets:
            line = {"arrowstyle": "-", "color": "#999999", "lw": 0.6} if float(np.hypot(dx, dy)) > LINE_FROM else None
            text = axes.annotate(
                name, (float(x), float(y)), (dx, dy), textcoords="offset points", ha=_side(dx), va="center",
                fontsize=8, zorder=4, arrowprops=line, path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )  # fmt: skip
            box = text.get_window_extent(canvas.get_renderer()).padded(1.5)
            if (dx, dy) == offsets[-1] or _is_free(box, taken, axes.bbox):  # no name is left out
                taken.append(box)
                break
            text.remove()


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


def _is_free(box: "Bbox", taken: "list[Bbox]", inside: "Bbox") -> bool:
    fits = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
    return fits and not any(box.overlaps(other) for other in taken)
