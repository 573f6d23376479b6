"""What the page of a run loads when a sample is opened: the lowest margin over the queries, and the highest logits."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, Final

import numpy as np
import pandas as pd

CHUNK: Final = 250
"""Rows of a table whose details are in one file."""

COLUMNS: Final = (
    "trace_queries",
    "trace_margins",
    "clean_top_labels",
    "clean_top_logits",
    "adv_top_labels",
    "adv_top_logits",
)
_PAIRS: Final = tuple(zip(COLUMNS[::2], COLUMNS[1::2], strict=True))
_LONGEST: Final = 40
"""Values of a list that are shown: more than any run of ours writes."""

KEPT: Final = "k"
OLD: Final = "o"
LABELS_ONLY: Final = "l"
LEFT_OUT: Final = "x"


def detail_letters(rows: pd.DataFrame, chosen: pd.Series) -> str:
    """Say of each row whether its details are kept, and if not, why: records are old, hold none, or are too many."""
    old = rows["clean_top_labels"].isna()
    empty = ~old & rows["clean_top_labels"].map(np.size).eq(0)
    return "".join(np.select([old, empty, ~chosen], [OLD, LABELS_ONLY, LEFT_OUT], default=KEPT))


def detail_labels(rows: pd.DataFrame) -> set[int]:
    """Return the classes whose logits are shown."""
    return {int(label) for name in COLUMNS[2::2] for some in rows[name] if _is_list(some) for label in some[:_LONGEST]}


def detail_chunks(rows: pd.DataFrame, letters: str) -> Iterator[tuple[int, dict[str, list[list[float]]]]]:
    """Yield the number of each file and its details, by the number of the row."""
    columns = [(rows[places].to_numpy(), rows[values].to_numpy()) for places, values in _PAIRS]
    for start in range(0, len(rows), CHUNK):
        part = range(start, min(start + CHUNK, len(rows)))
        found = {
            str(row): [one for places, values in columns for one in _pair(places[row], values[row])]
            for row in part
            if letters[row] == KEPT
        }
        if found:
            yield start // CHUNK, found


def _pair(places: Any, values: Any) -> tuple[list[float], list[float]]:
    """Return two lists for the browser; records of others may hold lists of unequal lengths, or infinite values."""
    both = zip(_plain(places), _plain(values), strict=False)
    kept = [(place, float(f"{value:.4g}")) for place, value in both if isfinite(value)]
    return [place for place, _ in kept], [value for _, value in kept]


def _plain(values: Any) -> Sequence[float]:
    return values[:_LONGEST].tolist() if _is_list(values) else ()


def _is_list(values: Any) -> bool:
    return isinstance(values, np.ndarray)
