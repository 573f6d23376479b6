"""Draws tables of rates as heat maps, and distributions, line searches and comparisons."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis.intervals import wilson
from robustassay.analysis.transfer import TransferMatrix
from robustassay.report.charts.style import COLOURS, MARKS, figure_of, title_with_note

Numbers = npt.NDArray[np.float64]
MAP: Final = "cividis"  # even in lightness, and the same to all kinds of colour vision
CELLS_WITH_NUMBERS: Final = 400
"""Larger heat maps show colours without numbers, which would be too small to read."""


def draw_transfer(found: TransferMatrix, path: Path, title: str = "") -> None:
    """Draw the rates of a transfer matrix, in percent."""
    draw_heat_map(100 * found.rates, path, title, f"{found.title}, %; {found.images}")


def draw_heat_map(
    values: pd.DataFrame,
    path: Path,
    title: str = "",
    note: str = "",
    axis_labels: tuple[str, str] = ("crafted on", "shown to"),
    ends: tuple[float, float] = (0.0, 100.0),
    digits: int = 0,
) -> None:
    """Draw a table as a heat map with a number in every cell; rows are labelled at the left, columns below."""
    rows, columns = values.shape
    longest = max(len(str(name)) for name in [*values.index, *values.columns])
    numbers = rows * columns <= CELLS_WITH_NUMBERS
    wide, high = (0.62, 0.42) if numbers else (0.2, 0.2)  # inches of a cell
    size = (2.6 + 0.07 * longest + wide * columns, 1.6 + 0.06 * longest + high * rows)
    with figure_of(size, path) as figure:
        axes = figure.add_subplot()
        shown = axes.imshow(values.to_numpy(float), cmap=MAP, vmin=ends[0], vmax=ends[1], aspect="auto")
        look: dict[str, Any] = {"rotation": 35, "ha": "right"} if numbers else {"rotation": 90, "fontsize": 9}
        axes.set_xticks(range(columns), [str(name) for name in values.columns], **look)
        axes.set_yticks(range(rows), [str(name) for name in values.index], fontsize=10 if numbers else 9)
        axes.set(ylabel=axis_labels[0], xlabel=axis_labels[1])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for (row, column), value in np.ndenumerate(values.to_numpy(float)):
            if numbers and np.isfinite(value):
                dark = (value - ends[0]) / (ends[1] - ends[0]) < 0.55
                text = f"{value:.{digits}f}"
                colour = "white" if dark else "black"
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=9)
        figure.colorbar(shown, ax=axes, fraction=0.05, pad=0.02).outline.set_visible(False)
        figure.suptitle(title_with_note(title, note), fontsize=10, x=0.02, ha="left")


def draw_distributions(values: Mapping[str, Numbers], path: Path, axis: str, title: str = "") -> None:
    """Draw the cumulative distribution of each set, with its median and 90th percentile; values may be infinite."""
    with figure_of((3.6 * len(values) + 0.4, 3.6), path) as figure:
        panels = figure.subplots(1, len(values), squeeze=False, sharex=True, sharey=True)[0]
        every = np.concatenate(list(values.values()))
        far = 1.05 * float(every[np.isfinite(every)].max(initial=1.0))
        for axes, (name, some) in zip(panels, values.items(), strict=True):
            ordered = np.sort(some)
            finite = ordered[np.isfinite(ordered)]
            share = np.arange(1, len(finite) + 1) / len(ordered)
            ends = np.append(finite, far), np.append(share, share[-1:] if len(share) else 0)
            axes.step(np.append(0, ends[0]), np.append(0, ends[1]), where="post", color=COLOURS[0], linewidth=1.8)
            notes = []
            for part, colour, style in ((0.5, COLOURS[2], "--"), (0.9, COLOURS[1], ":")):
                at = float(np.quantile(ordered, part, method="inverted_cdf"))
                notes.append(f"{part:.0%} by {at:.1f}" if np.isfinite(at) else f"{part:.0%} never")
                if np.isfinite(at):
                    axes.plot([at, at, 0], [0, part, part], color=colour, linestyle=style)
            axes.set(xlabel=axis, xlim=(0, far), ylim=(0, 1.02))
            axes.set_title(f"{name}, {len(ordered)} images: {', '.join(notes)}", fontsize=9)
        panels[0].set_ylabel("part of the images")
        figure.suptitle(title, fontsize=10, x=0.02, ha="left")


def draw_rays(
    wrong: Mapping[str, Sequence[tuple[float, float]]], end: float, path: Path, axis: str, title: str
) -> None:
    """Draw the intervals along each ray in which a model is wrong."""
    with figure_of((7.0, 1.5 + 0.28 * len(wrong)), path) as figure:
        axes = figure.add_subplot()
        for at, some in enumerate(wrong.values()):
            bars = [(low, max(high - low, end / 240)) for low, high in some]
            axes.broken_barh([(0, end)], (at - 0.3, 0.6), facecolors="#e4e4e4")
            axes.broken_barh(bars, (at - 0.3, 0.6), facecolors=COLOURS[1])
        axes.set_yticks(range(len(wrong)), list(wrong))
        axes.set(xlim=(0, end), xlabel=f"{axis}; orange: wrong, grey: right")
        axes.invert_yaxis()
        axes.grid(visible=False)
        figure.suptitle(title, fontsize=10, x=0.02, ha="left")


def draw_versus(counts: Mapping[str, Mapping[str, int]], total: int, path: Path, axis: str, title: str) -> None:
    """Draw two or more rates per group side by side, with their 95 % intervals."""
    ways = list(next(iter(counts.values())))
    highest = max(float(wilson(count, total)[1]) for group in counts.values() for count in group.values())
    with figure_of((1.3 * len(counts) + 1.4, 4.0), path) as figure:
        axes = figure.add_subplot()
        for at, way in enumerate(ways):
            found = np.array([group[way] for group in counts.values()])
            rate, (low, high) = found / total, wilson(found, total)
            x = np.arange(len(counts)) + 0.22 * (at - (len(ways) - 1) / 2)
            reach = np.abs(np.stack((rate - low, high - rate)))
            axes.errorbar(x, rate, reach, fmt=MARKS[at], color=COLOURS[at], capsize=4, ms=7, label=way, clip_on=False)
        axes.set_xticks(range(len(counts)), list(counts), fontsize=8)
        axes.set(ylabel=axis, ylim=(0, min(1.02, 1.2 * highest)), xlim=(-0.6, len(counts) - 0.4))
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=len(ways), frameon=False)
        figure.suptitle(f"{title}\n{total} images; bars: 95 % Wilson intervals", fontsize=10, x=0.02, ha="left")
