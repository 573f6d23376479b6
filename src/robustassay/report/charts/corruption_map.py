"""A heat map of accuracies under corruption: models, or the severities of one model, by kinds."""

from pathlib import Path
from typing import Any, Final

import pandas as pd

from robustassay.analysis import corruptions
from robustassay.errors import BadRequest, StoreFailed

DARK: Final = 0.55
"""Cells above this accuracy are light in the map's colours, and want dark figures on them."""


def check_name(path: Path) -> None:
    """Refuse a name that is no picture's, before any work is done."""
    if path.suffix not in (".png", ".svg"):
        raise BadRequest(f"{path} must end in .png or .svg.")


def draw(answers: pd.DataFrame, path: Path) -> None:
    """Draw a row a model, or a row a severity where there is one model, and write the accuracy into each cell."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.ticker import PercentFormatter
    except ImportError:
        raise BadRequest("A picture needs matplotlib: pip install 'robustassay[plots]'.") from None

    table, title = _table(answers)
    rows, columns = table.shape
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "assay", "svg.fonttype": "none"}):
        figure = Figure(figsize=(3.0 + 0.52 * columns, 1.9 + 0.36 * rows), layout="constrained")
        axes = figure.add_subplot()
        # cividis is read alike with any kind of colour vision, and in grey.
        image = axes.imshow(table.to_numpy(), cmap="cividis", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(columns), [str(name) for name in table.columns], rotation=40, ha="right")
        axes.set_yticks(range(rows), [str(name) for name in table.index])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xticks([edge - 0.5 for edge in range(1, columns)], minor=True)
        axes.set_yticks([edge - 0.5 for edge in range(1, rows)], minor=True)
        axes.grid(which="minor", color="white", linewidth=1.2)
        axes.tick_params(which="minor", length=0)
        _write_figures(axes, table)
        axes.set_title(title, loc="left", fontsize=9)
        figure.colorbar(image, ax=axes, format=PercentFormatter(1.0), label="accuracy", fraction=0.03, pad=0.01)
        stamp: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=160, metadata=stamp)
        except OSError as error:
            raise StoreFailed(f"{path} cannot be written ({error.strerror or error}): choose another place.") from error


def _table(answers: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    images = answers["sample_id"].nunique()
    names = list(answers["model"].unique())
    if len(names) > 1:
        return corruptions.by_kind(answers), f"accuracy, %, mean over severities; {images:,} images"
    table = corruptions.by_severity(answers).loc[names[0]].sort_index()
    table.index = pd.Index([f"severity {severity}" for severity in table.index])
    return table, f"{names[0]}: accuracy, %; {images:,} images"


def _write_figures(axes: Any, table: pd.DataFrame) -> None:
    for row, line in enumerate(table.to_numpy()):
        for column, value in enumerate(line):
            colour = "black" if value > DARK else "white"
            axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=colour, fontsize=8)
