"""Draws models by accuracy and robustness, with the fitted law and the frontier."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from robustassay.analysis.law import Law, Scatter
from robustassay.report.charts.curve_plot import COLOURS, MARKS
from robustassay.report.charts.matrices import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

WHOLE, EDGE = "#444444", "#888888"
PLACES: Final = tuple(
    (reach * np.cos(angle), reach * np.sin(angle))
    for reach in (11, 18, 27, 38)
    for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False)
)
"""Where a label may stand from its point, nearest first, in printer's points."""


def draw(found: Scatter, path: Path, title: str = "") -> None:
    """Draw a point a model, its interval, a colour and a mark a family, and the laws."""
    with figure_of((7.2, 5.2), path) as figure:
        axes = figure.add_subplot()
        _points(axes, found)
        accuracy = found.points["accuracy"].to_numpy(float)
        spare = 0.08 * max(np.ptp(accuracy), 0.01)
        ends = float(accuracy.min() - spare), float(min(accuracy.max() + spare, 0.9999))
        if found.of_all is not None:
            _line(axes, found.of_all, ends, WHOLE, "-", "all models")
        if found.of_frontier is not None and not found.on_frontier.all():
            _line(axes, found.of_frontier, ends, EDGE, "--", "the frontier")
        _step(axes, found)
        highest = float(found.points["high"].max())
        axes.set(xlim=ends, ylim=(0, 1.15 * highest), xlabel="top-1 accuracy", ylabel=found.measure)
        axes.xaxis.set_major_formatter("{x:.1%}")
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        few, many = int(found.points["images"].min()), int(found.points["images"].max())
        images = f"{few} to {many}" if few < many else f"{few}"
        says = f"{images} images a model; bars: 95 % bootstrap; band: 95 % of the law"
        figure.suptitle(f"{title}\n{says}" if title else says, fontsize=10, x=0.02, ha="left")
        _labels(figure, axes, found)


def _points(axes: "Axes", found: Scatter) -> None:
    for at, (family, own) in enumerate(found.points.groupby("family", sort=True)):
        value = own["value"].to_numpy(float)
        reach = np.abs(np.stack((value - own["low"].to_numpy(float), own["high"].to_numpy(float) - value)))
        axes.errorbar(
            own["accuracy"],
            value,
            reach,
            fmt=MARKS[at % len(MARKS)],
            color=COLOURS[at % len(COLOURS)],
            ms=7,
            capsize=2,
            elinewidth=0.8,
            label=str(family),
            zorder=3,
        )


def _line(axes: "Axes", law: Law, ends: tuple[float, float], colour: str, style: str, who: str) -> None:
    x = np.linspace(*ends, 60)
    y, low, high = law.at(x)
    label = f"{who}: {law.a:.3g} {'+' if law.b >= 0 else '−'} {abs(law.b):.3g} log(1 − accuracy)"
    axes.plot(x, y, style, color=colour, linewidth=1.4, label=label, zorder=2)
    if style == "-":
        axes.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)


def _step(axes: "Axes", found: Scatter) -> None:
    """Ring the models on the frontier."""
    on = found.points[found.on_frontier]
    axes.plot(on["accuracy"], on["value"], "o", ms=14, mfc="none", mec="black", mew=0.9, label="on the frontier")


def _labels(figure: "Figure", axes: "Axes", found: Scatter) -> None:
    """Write each model's name beside its point, where no other name or point stands."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    at = axes.transData.transform(found.points[["accuracy", "value"]].to_numpy(float))
    taken = [_around(float(x), float(y), 12.0) for x, y in at]
    for (x, y), name in zip(at, found.points["model"], strict=True):
        place = tuple(axes.transData.inverted().transform((x, y)))
        for dx, dy in PLACES:
            text = axes.annotate(
                str(name), place, (dx, dy), textcoords="offset points", ha=_side(dx), va="center", fontsize=8, zorder=4
            )
            box = text.get_window_extent(canvas.get_renderer()).padded(1.5)
            if _free(box, taken, axes.bbox) or (dx, dy) == PLACES[-1]:  # a name too many is written all the same
                taken.append(box)
                break
            text.remove()


def _side(dx: float) -> Literal["left", "center", "right"]:
    return "left" if dx > 4 else "right" if dx < -4 else "center"


def _free(box: "Bbox", taken: "list[Bbox]", inside: "Bbox") -> bool:
    fits = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
    return fits and not any(box.overlaps(other) for other in taken)


def _around(x: float, y: float, reach: float) -> "Bbox":
    from matplotlib.transforms import Bbox

    return Bbox.from_extents(x - reach, y - reach, x + reach, y + reach)
