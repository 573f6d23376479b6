"""Draws models by accuracy and robustness, with the fitted law and the frontier."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from robustassay.analysis.law import Law, Scatter
from robustassay.report.charts.label_placement import place_names
from robustassay.report.charts.style import COLOURS, MARKS, figure_of, title_with_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALL_MODELS, FRONTIER = "#444444", "#888888"
POINT_SIZE: Final = 12.0
CROWDED: Final = 9
"""More points than this get a taller figure."""


def draw(found: Scatter, path: Path, title: str = "") -> None:
    """Draw one point per model with its interval, one colour and mark per family, and the laws."""
    with figure_of((7.2, 6.4 if len(found.points) > CROWDED else 5.2), path) as figure:
        axes = figure.add_subplot()
        _points(axes, found)
        accuracy = found.points["accuracy"].to_numpy(float)
        spare = 0.08 * max(np.ptp(accuracy), 0.01)
        ends = float(accuracy.min() - spare), float(min(accuracy.max() + spare, 0.9999))
        if found.of_all is not None:
            _line(axes, found.of_all, ends, ALL_MODELS, "-", "all models")
        if found.of_frontier is not None and not found.on_frontier.all():
            _line(axes, found.of_frontier, ends, FRONTIER, "--", "the frontier")
        _frontier(axes, found)
        axes.set(xlim=ends, ylim=_ends(found), xlabel="top-1 accuracy", ylabel=found.measure)
        axes.xaxis.set_major_formatter("{x:.1%}")
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        few, many = int(found.points["images"].min()), int(found.points["images"].max())
        images = f"{few} to {many}" if few < many else f"{few}"
        note = f"{images} images per model; bars: 95 % bootstrap; band: 95 % of the law"
        figure.suptitle(title_with_note(title, note), fontsize=10, x=0.02, ha="left")
        points = found.points[["accuracy", "value"]].to_numpy(float)
        names = [str(name) for name in found.points["model"]]
        bars = found.points[["accuracy", "low", "high"]].to_numpy(float)
        place_names(figure, axes, points, points, names, bars, point_size=POINT_SIZE)


def _ends(found: Scatter) -> tuple[float, float]:
    """Return the ends of the picture: the longest bars, unless these would flatten all points."""
    top = min(1.1 * float(found.points["high"].max()), 1.6 * float(found.points["value"].max()))
    low = float(found.points["low"].min())
    return max(0.0, low - 0.2 * (top - low)), top


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


def _line(axes: "Axes", law: Law, ends: tuple[float, float], colour: str, style: str, name: str) -> None:
    x = np.linspace(*ends, 60)
    y, low, high = law.at(x)
    label = f"{name}: {law.a:.3g} {'+' if law.b >= 0 else '−'} {abs(law.b):.3g} log(1 − accuracy)"
    axes.plot(x, y, style, color=colour, linewidth=1.4, label=label, zorder=2)
    if style == "-":
        axes.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)


def _frontier(axes: "Axes", found: Scatter) -> None:
    """Ring the models on the frontier."""
    on = found.points[found.on_frontier]
    axes.plot(on["accuracy"], on["value"], "o", ms=14, mfc="none", mec="black", mew=0.9, label="on the frontier")
