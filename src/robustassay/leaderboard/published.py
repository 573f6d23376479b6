"""The entries that RobustBench published, as of March 2025 (https://github.com/RobustBench/robustbench, MIT licence).

`entries.csv` has one row per entry, in percent. `corruptions_DATASET.csv` has the accuracy of each model under each
corruption at each severity, as RobustBench writes it.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pandas as pd

from robustassay.leaderboard.entry import Entry
from robustassay.leaderboard.model_info import entry_of

NAME: Final = "robustbench"
"""What `--published` calls these entries."""

FOLDER: Final = Path(__file__).parent / "robustbench"
SNAPSHOT: Final = "March 2025"
_FIELDS: Final = {
    "link": "link",
    "title": "name",
    "authors": "authors",
    "dataset": "dataset",
    "venue": "venue",
    "architecture": "architecture",
    "eps": "eps",
    "clean_accuracy": "clean_acc",
    "reported_accuracy": "reported",
    "autoattack_accuracy": "autoattack_acc",
    "best_known_accuracy": "external",
    "corruption_accuracy": "corruptions_acc",
    "corruption_mce": "corruptions_mce",
}
"""Columns of the table, and the fields of `model_info` they come from."""


_RENAMED: Final = {f"Hendrycks2020AugMix{name}": f"Hendrycks2020AugMix_{name}" for name in ("WRN", "ResNeXt")}
"""Two models are called otherwise in one of RobustBench's files."""


@lru_cache(maxsize=1)
def published_table() -> pd.DataFrame:
    """Return the table of all published entries, in percent; missing values are NaN or empty."""
    table = pd.read_csv(FOLDER / "entries.csv", dtype={"eps": "str", "unreliable": "boolean"})
    return table.assign(venue=table["venue"].str.replace("<br>", " ").str.strip())


def published_entries() -> list[Entry]:
    """Return all published entries."""
    return [_entry(row) for row in published_table().to_dict("records")]


def published_corruptions(dataset: str) -> pd.DataFrame:
    """Return the accuracy of published models under corruptions: model, kind, severity, accuracy."""
    wide = pd.read_csv(FOLDER / f"corruptions_{dataset}.csv", header=[0, 1], index_col=0).rename(index=_RENAMED)
    long = wide.stack([0, 1], future_stack=True).rename_axis(["model", "kind", "severity"])
    return (
        pd.DataFrame({"accuracy": long})
        .reset_index()
        .assign(
            kind=lambda frame: frame["kind"].str.replace("_", "-"), severity=lambda frame: frame["severity"].astype(int)
        )
    )


def _entry(row: Mapping[Any, Any]) -> Entry:
    info = {field: _known(row[column]) for column, field in _FIELDS.items()}
    info |= {"additional_data": bool(row["additional_data"]), "unreliable": row["unreliable"] is True}
    info["number_forward_passes"] = int(row["number_forward_passes"])
    return entry_of(str(row["model"]), str(row["threat"]), info)


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
