"""Draws the panels of analyses."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from robustassay.analysis.panels import Bars, HeatMap, Lines, Panel, Points, Reliabilities
from robustassay.report.charts.label_placement import place_names
from robustassay.report.charts.matrices import draw_heat_map
from robustassay.report.charts.style import COLOURS, MARKS, STYLES, figure_of, title_with_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CROWD: Final = 0.04
"""Points closer than this part of both axes share one name, with the number of the others."""

MANY_LINES: Final = 9
"""More lines than this get a taller figure and a smaller legend."""

ONE_LINE: Final = 50
"""Letters of an axis's names that fit side by side."""

ROW: Final = 4
"""Reliability diagrams per row."""

PAIRS: Final = 4
"""Groups whose legend has two rows of two."""


def draw(panel: Panel, path: Path) -> None:
    """Draw a panel to a file."""
    content = panel.content
    if isinstance(content, Points):
        _points(content, panel.title, path)
    elif isinstance(content, Bars):
        _bars(content, panel.title, path)
    elif isinstance(content, Lines):
        _lines(content, panel.title, path)
    elif isinstance(content, HeatMap):
        draw_heat_map(content.frame, path, panel.title, content.note, (content.rows, content.columns))
    else:
        _reliabilities(content, panel.title, path)


def _points(found: Points, title: str, path: Path) -> None:
    frame = found.frame
    with figure_of((7.2, 5.0), path) as figure:
        axes = figure.add_subplot()
        for at, (group, own) in enumerate(frame.groupby("group", sort=True, observed=False)):
            if not len(own):
                continue  # the colours of the other groups do not change
            error = None
            if {"low", "high"} <= set(own):
                error = np.abs(np.stack((own["y"] - own["low"], own["high"] - own["y"])))
            axes.errorbar(
                own["x"], own["y"], error, fmt=MARKS[at % len(MARKS)], color=COLOURS[at % len(COLOURS)],
                ms=7, capsize=2, elinewidth=0.8, label=f"{group} ({len(own)})", zorder=3,
            )  # fmt: skip
        axes.margins(0.12, 0.14)
        _percent(axes, *found.percent)
        if found.level is not None:
            axes.axhline(found.level, color="#888888", linestyle="--", linewidth=1, zorder=1)
        if found.diagonal:
            middle = float(frame["x"].mean())
            axes.axline((middle, middle), slope=1, color="#888888", linestyle=":", linewidth=1, zorder=1)
        axes.set(xlabel=found.x, ylabel=found.y)
        if not found.percent[0] and np.allclose(frame["x"], frame["x"].round()):
            axes.set_xticks(sorted({int(x) for x in frame["x"]}))
        ncols = 3 if frame["group"].nunique() != PAIRS else 2
        figure.legend(loc="outside lower center", ncols=ncols, columnspacing=1.2, frameon=False, fontsize=9)
        figure.suptitle(title_with_note(title, found.note), fontsize=10, x=0.02, ha="left")
        points = frame[["x", "y"]].to_numpy(float)
        kept, names = _chosen(found, points)
        ends = frame[["x", "low", "high"]].to_numpy(float) if {"low", "high"} <= set(frame) else np.empty((0, 3))
        place_names(figure, axes, points, points[kept], names, ends)


def _bars(found: Bars, title: str, path: Path) -> None:
    frame = found.frame
    rows, columns = frame.shape
    with figure_of((7.2, 1.6 + 0.24 * rows * max(1, columns - 1)), path) as figure:
        axes = figure.add_subplot()
        height = 0.8 / columns
        for at, name in enumerate(frame.columns):
            y = np.arange(rows) + (at - (columns - 1) / 2) * height
            axes.barh(y, frame[name], 0.92 * height, color=COLOURS[at % len(COLOURS)], label=str(name))
        axes.set_yticks(range(rows), [str(model) for model in frame.index])
        axes.set_ylim(rows - 0.4, -0.6)  # the first model on top, no empty ends
        axes.set(xlabel=found.axis)
        axes.grid(visible=False, axis="y")
        _percent(axes, found.percent, False)
        if found.level is not None:
            axes.axvline(found.level, color="#888888", linestyle="--", linewidth=1)
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        figure.suptitle(title_with_note(title, found.note), fontsize=10, x=0.02, ha="left")


def _lines(found: Lines, title: str, path: Path) -> None:
    frame, numeric = found.solid, pd.api.types.is_numeric_dtype(found.solid.index)
    x = frame.index.to_numpy(float) if numeric else np.arange(len(frame))
    many = len(frame.columns) > MANY_LINES
    with figure_of((7.2, 5.6 if many else 4.9), path) as figure:
        axes = figure.add_subplot()
        for at, model in enumerate(frame.columns):
            colour, style, mark = _look(found, at)
            look: dict[str, Any] = {"color": colour, "linewidth": 1.6}
            known = frame[model].notna().to_numpy(bool)
            axes.plot(x[known], frame[model][known], style, marker=mark, ms=5, label=str(model), **look)
            if found.dotted is not None:
                axes.plot(x, found.dotted[model], ":", **look)
        if not numeric:
            names = [str(name) for name in frame.index]
            turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if len("".join(names)) > ONE_LINE else {}
            axes.set_xticks(x, names, **turned)
        elif np.allclose(x, x.round()):
            axes.set_xticks(x)
        if found.logarithmic:
            axes.set_yscale("log")
        _percent(axes, False, found.percent)
        axes.set(xlabel=found.x, ylabel=found.y)
        if found.percent and frame.max().max() <= 1:
            low, high = axes.get_ylim()
            axes.set_ylim(low, min(high, 1 + 0.04 * (1 - low)))  # no rate is above 100 %
        meaning = f"solid: {found.meaning[0]}, dotted: {found.meaning[1]}" if found.dotted is not None else ""
        figure.legend(loc="outside lower center", ncols=4 if many else 3, frameon=False, fontsize=8 if many else 9,
                      handlelength=3)  # fmt: skip
        note = "; ".join(filter(None, (meaning, found.note)))
        figure.suptitle(title_with_note(title, note), fontsize=10, x=0.02, ha="left")


def _look(found: Lines, at: int) -> tuple[str, str, str]:
    """Return the colour, the style and the mark of a line: by group where there are groups, else by its place."""
    if found.groups:
        group = list(dict.fromkeys(found.groups)).index(found.groups[at])
        member = found.groups[:at].count(found.groups[at])
        style = STYLES[member % len(STYLES)] if found.dotted is None else "-"
        return COLOURS[group % len(COLOURS)], style, MARKS[(group + member) % len(MARKS)]
    mark = MARKS[(at + at // len(COLOURS)) % len(MARKS)]  # not the same with the same colour
    return COLOURS[at % len(COLOURS)], STYLES[at % len(STYLES)] if found.dotted is None else "-", mark


def _reliabilities(found: Reliabilities, title: str, path: Path) -> None:
    columns = min(ROW, len(found.bins))
    rows = -(-len(found.bins) // columns)
    with figure_of((2.3 * columns + 0.5, 2.3 * rows + 0.9), path) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for axes, (model, bins) in zip(panels, found.bins.items(), strict=False):
            held = bins[bins["images"] > 0]
            axes.plot([0, 1], [0, 1], ":", color="#888888", linewidth=1)
            axes.plot(held["confidence"], held["accuracy"], "-", color=COLOURS[0], linewidth=1)
            share = held["images"] / held["images"].sum()
            axes.scatter(held["confidence"], held["accuracy"], s=12 + 160 * share, color=COLOURS[0], alpha=0.75, lw=0)
            axes.set_title(model, fontsize=9)
            axes.annotate(f"ECE {found.errors[model]:.1%}", (0.04, 0.9), fontsize=8)
            axes.set(xlim=(0, 1.03), ylim=(0, 1.03))
        for axes in panels[max(0, len(found.bins) - columns) : len(found.bins)]:
            axes.tick_params(labelbottom=True)  # the last row may have gaps
        for axes in panels[len(found.bins) :]:
            axes.set_visible(False)
        figure.supxlabel("confidence", fontsize=10)
        figure.supylabel("accuracy", fontsize=10)
        figure.suptitle(title_with_note(title, found.note), fontsize=10, x=0.02, ha="left")


def _chosen(found: Points, points: "np.ndarray[Any, Any]") -> tuple[list[int], list[str]]:
    """Choose the points to name: those asked for, or all that are not crowded."""
    names = found.frame["model"].tolist()
    if found.named is None:
        return _named(points, names)
    kept = [at for at, name in enumerate(names) if name in found.named]
    return kept, [names[at] for at in kept]


def _named(points: "np.ndarray[Any, Any]", names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Choose the points to name: of several close together the first, with the number of the others."""
    if not names:
        return [], []
    span = np.where(np.ptp(points, axis=0) > 0, np.ptp(points, axis=0), 1.0)
    left, kept, labels = list(range(len(points))), [], []
    while left:
        first = left[0]
        near = [at for at in left if (np.abs(points[at] - points[first]) <= CROWD * span).all()]
        crowded = len(near) > 2
        for at in near[:1] if crowded else near:
            kept.append(at)
            labels.append(f"{names[at]} and {len(near) - 1} more" if crowded else names[at])
        left = [at for at in left if at not in near]
    return kept, labels


def _percent(axes: "Axes", x: bool, y: bool) -> None:
    from matplotlib.ticker import PercentFormatter

    for wanted, axis in ((x, axes.xaxis), (y, axes.yaxis)):
        if wanted:
            axis.set_major_formatter(PercentFormatter(1.0))
