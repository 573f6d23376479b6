"""Puts names beside points where no other name or point stands, with a thin line where that is some way off."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

Spots = npt.NDArray[np.float64]

REACHES: Final = (10.0, 17.0, 26.0, 38.0, 54.0, 72.0)
AROUND: Final = 9.0
"""What a point takes up either way, in pixels of a picture of 100 a inch."""


def place(figure: "Figure", axes: "Axes", every: Spots, bars: Spots, spots: Spots, names: Sequence[str]) -> None:
    """Write each name beside its spot; `every` point and upright bar (x, low, high) is kept free of names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    to_pixels = axes.transData
    taken = [
        Bbox.from_extents(x - AROUND, y - AROUND, x + AROUND, y + AROUND)
        for x, y in np.asarray(to_pixels.transform(every))
    ]
    for (x, low), (_, high) in zip(to_pixels.transform(bars[:, :2]), to_pixels.transform(bars[:, ::2]), strict=True):
        taken.append(Bbox.from_extents(x - 2, low, x + 2, high))
    for spot, name in zip(spots, names, strict=True):
        for dx, dy in _offsets():
            side = "left" if dx > 4 else "right" if dx < -4 else "center"
            far = float(np.hypot(dx, dy)) > REACHES[2]
            text = axes.annotate(
                name, (float(spot[0]), float(spot[1])), (dx, dy), textcoords="offset points", ha=side, va="center",
                fontsize=8, zorder=4, arrowprops={"arrowstyle": "-", "color": "#999999", "lw": 0.6} if far else None,
            )  # fmt: skip
            box = text.get_window_extent(canvas.get_renderer()).padded(1.5)
            last = (dx, dy) == _offsets()[-1]
            if last or _free(box, taken, axes.bbox):  # a name too many is written all the same
                taken.append(box)
                break
            text.remove()


def _offsets() -> list[tuple[float, float]]:
    turns = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    return [(float(reach * np.cos(turn)), float(reach * np.sin(turn))) for reach in REACHES for turn in turns]


def _free(box: "Bbox", taken: "list[Bbox]", inside: "Bbox") -> bool:
    fits = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
    return fits and not any(box.overlaps(other) for other in taken)
