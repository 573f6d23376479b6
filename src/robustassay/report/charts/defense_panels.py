"""Draws the figures of Dong et al.: one panel per attack, one line per defense, one legend."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from robustassay.analysis.curves import Curve
from robustassay.report.charts.style import COLOURS, STYLES, figure_of
from robustassay.studies.dong2020.figures import BANDS_FROM, AttackPanel, DefensePanels, Lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REACH: Final = 4.0
"""The axis of budgets ends at this multiple of the fixed eps, or before, where all curves have ended."""

SQUEEZED: Final = 0.1
"""Curves that all have fallen to a half in this part of the axis of budgets get a logarithmic one."""

PANEL: Final = (2.75, 2.5)  # inches
ACROSS: Final = 3
FIXED: Final = "#888888"
LINES: Final = (*COLOURS, "#882255", "#8C6D31")
"""A colour for each of the paper's eight defenses and one more."""
WIDTH: Final = 7.2
"""Of a figure with few panels, for the legend and the labels below it."""


def draw(shown: DefensePanels, path: Path) -> None:
    """Draw all panels with a common legend below them."""
    columns = 2 if len(shown.panels) == 4 else min(len(shown.panels), ACROSS)
    rows = -(-len(shown.panels) // columns)
    entries = 4 if columns > 1 else 2
    legend = 0.6 + 0.22 * -(-(len(shown.defenses) + 1) // entries)
    width = max(PANEL[0] * columns, WIDTH)
    with figure_of((width, PANEL[1] * rows + legend), path) as figure:
        from matplotlib.lines import Line2D
        from matplotlib.ticker import PercentFormatter

        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for axes in grid.flat[len(shown.panels) :]:
            axes.set_visible(False)
        for panel, axes in zip(shown.panels, grid.flat[: len(shown.panels)], strict=True):
            _draw_panel(axes, panel, shown)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        for axes in grid[:, 0]:
            axes.set_ylabel(shown.rate)
        for axes in grid.flat[max(0, len(shown.panels) - columns) : len(shown.panels)]:  # the lowest of each column
            axes.set_xlabel(_axis(shown), fontsize=9)
        drawn = {name for panel in shown.panels for name in panel.curves}
        lines = [
            Line2D([], [], color=colour, linestyle=style, label=name)
            for name, (colour, style) in zip(shown.defenses, map(_look, range(len(shown.defenses))), strict=True)
            if name in drawn
        ]
        if shown.axis == "eps":
            lines.append(Line2D([], [], color=FIXED, linewidth=0.8, linestyle=":", label="the fixed eps"))
        figure.legend(handles=lines, loc="outside lower center", ncols=entries, frameon=False, handlelength=3.2)


def _draw_panel(axes: "Axes", panel: AttackPanel, shown: DefensePanels) -> None:
    scale = _scale(shown)
    end = max(_end(curve, shown) for curve in panel.curves.values()) * scale
    for name, curve in panel.curves.items():
        colour, style = _look(shown.defenses.index(name))
        x, rate, low, high = _points(curve, scale, end)
        is_step = isinstance(curve, Curve)
        drawn, mark = ("steps-post", None) if is_step else ("default", ".")
        axes.plot(x, rate, color=colour, linestyle=style, linewidth=1.4, drawstyle=drawn, marker=mark)
        if _samples(curve) >= BANDS_FROM:
            axes.fill_between(x, low, high, step="post" if is_step else None, color=colour, alpha=0.1, linewidth=0)
    if shown.axis == "eps":
        axes.axvline(shown.norm.eps * scale, color=FIXED, linewidth=0.8, linestyle=":")
    _scale_axis(axes, end, shown)
    samples = sorted({_samples(curve) for curve in panel.curves.values()})
    span = f"{samples[0]:,}" if len(samples) == 1 else f"{samples[0]:,} to {samples[-1]:,}"
    axes.set(ylim=(0, 1.02), title=f"{panel.attack} (n = {span})")
    axes.title.set_fontsize(10)


def _scale_axis(axes: "Axes", end: float, shown: DefensePanels) -> None:
    """Give the axis a logarithm where curves would be too close to its start; a strength of few steps is counted."""
    curves = [curve for panel in shown.panels for curve in panel.curves.values() if isinstance(curve, Curve)]
    medians = [curve.median * _scale(shown) for curve in curves if shown.axis == "eps"]
    near, linear = min(medians, default=0.0), 10.0
    if near > 0 and max(medians) < SQUEEZED * end:
        linear = 10.0 ** math.floor(math.log10(near))
    elif shown.axis == "eps" or end <= 100:
        axes.set_xlim(0, end)
        axes.locator_params(axis="x", integer=shown.axis != "eps")
        return
    axes.set_xscale("symlog", linthresh=linear)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    axes.set_xlim(0, end)


def _points(curve: Curve | Lines, scale: float, end: float) -> tuple[np.ndarray, ...]:
    """Return places, rates and 95 % bounds up to the end of the axis."""
    if isinstance(curve, Curve):
        frame = curve.to_frame()
        x, rate, low, high = (frame[name].to_numpy(float) for name in (curve.versus, curve.measure, "low", "high"))
        x = x * scale
        if len(x) and x[-1] < end and (curve.versus == "eps" or curve.is_flat_after_end):
            x, rate, low, high = np.append(x, end), *(np.append(y, y[-1]) for y in (rate, low, high))
        return x, rate, low, high
    bounds = [rate.interval() for rate in curve.values()]
    low, high = (np.array([each[at] for each in bounds], float) for at in (0, 1))
    return np.array(list(curve), float), np.array([rate.value for rate in curve.values()]), low, high


def _end(curve: Curve | Lines, shown: DefensePanels) -> float:
    if not isinstance(curve, Curve):
        return float(max(curve))
    if curve.versus != "eps":
        return max(curve.end, 1.0)
    broken = curve.breaks_at[np.isfinite(curve.breaks_at)]
    most = float(broken.max()) if len(broken) else 0.0
    return min(max(1.05 * most, 1.25 * shown.norm.eps), REACH * shown.norm.eps)


def _samples(curve: Curve | Lines) -> int:
    """Return how many samples a rate is of; success of untargeted attacks counts correctly classified ones only."""
    if isinstance(curve, Curve):
        return int(curve.to_frame()["total"].iloc[0])
    return max(rate.total for rate in curve.values())


def _scale(shown: DefensePanels) -> float:
    return 255.0 if shown.axis == "eps" and shown.norm.name == "Linf" else 1.0


def _axis(shown: DefensePanels) -> str:
    first = next(iter(shown.panels[0].curves.values()))
    if shown.axis == "strength":
        return first.versus if isinstance(first, Curve) else "iterations on the substitute"
    norm = shown.norm.name.replace("inf", "∞")
    unit = "in 1/255" if _scale(shown) != 1 else "normalised" if shown.normalised else "pixels in [0, 1]"
    return f"budget, {norm} ({unit})"


def _look(at: int) -> tuple[str, Any]:
    """Return the colour and style of a defense; one that repeats a colour has another style."""
    around, colour = divmod(at, len(LINES))
    return LINES[colour], STYLES[(colour + 2 * around) % len(STYLES)]
