"""Draws curves with their 95 % bands."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from robustassay.analysis.curves import Curve
from robustassay.report.charts.style import COLOURS, MARKS, STYLES, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from robustassay.report.charts.curve_chart import CurveChart

SHOWN: Final = 0.95
"""The axis ends where this part of all broken samples is broken: the last few would squeeze the rest."""


def draw(chart: "CurveChart", path: Path) -> None:
    """Draw all curves with their 95 % bands into one picture."""
    scale = 255.0 if chart.versus == "eps" and chart.norm == "Linf" else 1.0
    columns = 1 if max(len(curve.label) for curve in chart.curves) > 36 else 2
    with figure_of((7.2, 4.2 + 0.22 * len(chart.curves) / columns), path) as figure:
        from matplotlib.ticker import PercentFormatter

        axes = figure.add_subplot()
        end = max(_end(curve) for curve in chart.curves)
        for at, curve in enumerate(chart.curves):
            _draw_curve(axes, curve, at, scale, end)
        axes.set(xlim=(0, end * scale), ylim=(0, 1.02), xlabel=_axis(chart, scale))
        axes.set_ylabel("attack success rate" if chart.measure == "success" else "accuracy under attack")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        figure.legend(loc="outside upper left", frameon=False, handlelength=3.5, ncols=columns)
        samples = sorted({len(curve.breaks_at) for curve in chart.curves})
        note = f"{' or '.join(f'{n:,}' for n in samples)} samples; bands: pointwise 95 % Wilson intervals"
        axes.annotate(note, (1, 1.01), xycoords="axes fraction", ha="right", va="bottom", fontsize=8, color="#666666")


def _draw_curve(axes: "Axes", curve: Curve, at: int, scale: float, end: float) -> None:
    colour, style = COLOURS[at % len(COLOURS)], STYLES[at % len(STYLES)]
    frame = curve.to_frame()
    x = frame[curve.versus].to_numpy(np.float64) * scale
    rate, low, high = (frame[name].to_numpy(np.float64) for name in (curve.measure, "low", "high"))
    if curve.only_at is not None:  # no value is known between the points, so no line is drawn
        reach = np.abs(np.stack((rate - low, high - rate)))
        mark = MARKS[at % len(MARKS)]
        label = f"{curve.label} (fixed radius)"
        axes.errorbar(x, rate, reach, fmt=mark, ms=5, color=colour, capsize=3, label=label, clip_on=False)
        return
    if x[-1] < end * scale and curve.is_flat_after_end:
        x, rate, low, high = np.append(x, end * scale), *(np.append(y, y[-1]) for y in (rate, low, high))
    axes.step(x, rate, where="post", color=colour, linestyle=style, linewidth=1.6, label=curve.label)
    axes.fill_between(x, low, high, step="post", color=colour, alpha=0.13, linewidth=0)


def _end(curve: Curve) -> float:
    if curve.only_at is not None:
        return 1.1 * max(curve.only_at)
    if np.isfinite(curve.end):
        return max(curve.end, 1.0)
    broken = curve.breaks_at[np.isfinite(curve.breaks_at)]
    return 1.05 * float(broken.quantile(SHOWN)) if len(broken) and broken.max() > 0 else 1.0


def _axis(chart: "CurveChart", scale: float) -> str:
    if chart.versus != "eps":
        return chart.versus
    norm = chart.norm.replace("inf", "∞")
    unit = "1/255" if scale != 1 else "normalised by the image's size" if chart.normalised else "pixels in [0, 1]"
    return f"perturbation budget, {norm} ({unit})"
