"""A heat map of accuracies under corruptions: one row per model, or per severity of one model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from robustassay.analysis import corruptions
from robustassay.errors import BadRequest, StoreFailed
from robustassay.report.charts.style import figure_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK: Final = 0.55
"""Cells above this accuracy have a light colour and dark numbers."""


def check_name(path: Path) -> None:
    """Refuse a name with another suffix, before any work is done."""
    if path.suffix not in (".png", ".svg"):
        raise BadRequest(f"{path} must end in .png or .svg.")


def draw(answers: pd.DataFrame, path: Path) -> None:
    """Draw one row per model, or one row per severity of a single model, with the accuracy in each cell."""
    table, title = _table(answers)
    rows, columns = table.shape
    try:
        with figure_of((3.0 + 0.52 * columns, 1.9 + 0.36 * rows), path) as figure:
            _draw(figure, table, title)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written ({error.strerror or error}): choose another place.") from error


def _draw(figure: "Figure", table: pd.DataFrame, title: str) -> None:
    from matplotlib.ticker import PercentFormatter

    rows, columns = table.shape
    axes = figure.add_subplot()
    # cividis is readable with all kinds of colour vision, and in grey.
    image = axes.imshow(table.to_numpy(), cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(columns), [str(name) for name in table.columns], rotation=40, ha="right", fontsize=9)
    axes.set_yticks(range(rows), [str(name) for name in table.index], fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks([edge - 0.5 for edge in range(1, columns)], minor=True)
    axes.set_yticks([edge - 0.5 for edge in range(1, rows)], minor=True)
    axes.grid(visible=False)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)
    _write_numbers(axes, table)
    axes.set_title(title, loc="left", fontsize=9)
    figure.colorbar(image, ax=axes, format=PercentFormatter(1.0), label="accuracy", fraction=0.03, pad=0.01)


def _table(answers: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    images = answers["sample_id"].nunique()
    names = list(answers["model"].unique())
    if len(names) > 1:
        return corruptions.by_kind(answers), f"accuracy, %, mean over severities; {images:,} images"
    table = corruptions.by_severity(answers).loc[names[0]].sort_index()
    table.index = pd.Index([f"severity {severity}" for severity in table.index])
    return table, f"{names[0]}: accuracy, %; {images:,} images"


def _write_numbers(axes: Any, table: pd.DataFrame) -> None:
    for row, line in enumerate(table.to_numpy()):
        for column, value in enumerate(line):
            colour = "black" if value > DARK else "white"
            axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=colour, fontsize=8)
