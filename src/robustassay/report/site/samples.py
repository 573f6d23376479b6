"""The samples of a run as its page lists them: outcome, classes, margins, distance and effort, one row per sample."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import pandas as pd

from robustassay.report.site.gallery import seeks_minimum
from robustassay.report.site.sample_details import CHUNK, COLUMNS, detail_chunks, detail_labels, detail_letters
from robustassay.results.models import AttackSummary, Frames, ModelResult
from robustassay.results.runs import StoredRun

OUTCOMES: Final = {
    "b": "broken",
    "s": "standing",
    "d": "in doubt",
    "n": "not verified",
    "w": "misclassified",
}
"""What happened to a sample, by the letter that the browser reads."""

ALL_ROWS: Final = 100_000
"""Rows in all tables of a site together, so that it can still be sent by mail."""
FEWEST_ROWS: Final = 50
DETAILED: Final = 0.4
"""Fraction of the rows that a table may have whose details are kept, those nearest to the decision boundary."""
LONGEST_WAY: Final = 24
"""Improvements of one sample that its chart shows."""


@final
@dataclass(frozen=True, eq=False)
class SampleTable:
    """The rows that the page of one run shows: all of them, or those nearest to the decision boundary."""

    run: StoredRun
    counts: Mapping[str, int]  # of all samples, by the letter of the outcome
    rows: pd.DataFrame
    others: tuple[str, ...]  # labels of the attacks that `broken_by` counts
    details: str  # per row, whether its margins and logits are kept
    minimal: bool  # the attack seeks the nearest point, so its distances say how near the boundary is

    @property
    def total(self) -> int:
        """How many samples the run has."""
        return sum(self.counts.values())

    @property
    def file(self) -> str:
        """The path of its data on the site."""
        return f"data/{self.name}.js"

    @property
    def name(self) -> str:
        """What the browser calls its data."""
        return f"samples-{self.run.page.removeprefix('runs/').removesuffix('.html')}"

    @property
    def labels(self) -> set[int]:
        """All classes that occur in it."""
        columns = ("label", "clean_label", "adv_label", "target")
        found = {int(one) for column in columns for one in self.rows[column].dropna().unique()}
        return found | detail_labels(self.rows)

    def detail_files(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the files of details, which the browser loads when a sample is opened."""
        for number, found in detail_chunks(self.rows, self.details):
            yield f"data/{self.name}/{number}.js", found

    def to_json(self) -> dict[str, Any]:
        """Return the columns as plain lists; what most samples lack is left out or null."""
        rows = self.rows
        eps = float(self.run.spec["threat"]["eps"])
        columns = {
            "id": [str(one) for one in rows["sample_id"]],
            "outcome": "".join(rows["outcome"]),
            "detail": self.details,
            "label": _whole(rows["label"]),
            "clean": _whole(rows["clean_label"]),
            "adv": _whole(rows["adv_label"]),
            "margin0": _short(rows["clean_margin"]),
            "margin": _short(rows["margin"]),
            "p0": _short(rows["clean_confidence"], 3),
            "p": _short(rows["adv_confidence"], 3),
            "distance": _short(rows["distance"]),
            "iteration": _whole(rows["claimed_at_iteration"]),
            "query": _whole(rows["claimed_at_query"]),
            "iterations": _whole(rows["iterations"]),
            "queries": _whole(rows["queries"]),
            "uint8": [None if pd.isna(one) else int(one) for one in rows["uint8_ok"]],
            "stage": [None if pd.isna(one) else str(one) for one in rows["claimed_by"]],
            "problem": [None if pd.isna(one) else str(one) for one in rows["problem"]],
            "other": _whole(rows["broken_by"]),
            "target": _whole(rows["target"]),
        }
        kept = {name: values for name, values in columns.items() if any(one is not None for one in values)}
        about = {"others": self.others, "eps": eps, "minimal": self.minimal, "name": self.name, "chunk": CHUNK}
        ways = {str(at): way for at, found in enumerate(rows["improvements"]) if len(way := _way(found)) > 1}
        return {**kept, "ways": ways, **about}


def rows_each(runs: int) -> int:
    """Return how many rows the table of each run may have."""
    return max(FEWEST_ROWS, ALL_ROWS // max(runs, 1))


def sample_table(attack: AttackSummary, result: ModelResult | None, frames: Frames, most: int) -> SampleTable:
    """List the samples of one run; `result` is that of its model under the threat, if the run is part of it."""
    records = frames[attack.key]
    counted = result is not None and attack in result.counted
    doubtful = result.doubtful if result is not None and counted else frozenset()
    found = records.assign(outcome=outcomes(records, doubtful), broken_by=pd.array([pd.NA] * len(records), "Int64"))
    others = [one for one in result.counted if one is not attack] if result is not None and counted else []
    for at, other in enumerate(others):
        fell = _fell(frames[other.key])
        new = found["sample_id"].isin(fell) & found["outcome"].isin(["s", "n"]) & found["broken_by"].isna()
        found.loc[new, "broken_by"] = at
    counts = {letter: int((found["outcome"] == letter).sum()) for letter in OUTCOMES}
    minimal = seeks_minimum(attack.run)
    eps = float(attack.run.spec["threat"]["eps"]) if minimal else None
    kept = nearest(found, most, eps)
    chosen = boundary_gap(kept, eps).rank(method="first") <= DETAILED * most
    details = detail_letters(kept, chosen)
    kept.loc[~chosen, list(COLUMNS)] = None  # frees their memory
    return SampleTable(attack.run, counts, kept, tuple(other.label for other in others), details, minimal)


def outcomes(records: pd.DataFrame, doubtful: Collection[str]) -> pd.Series:
    """Return the letter of what happened to each sample."""
    clean, won = records["clean_ok"].astype(bool), records["success"].astype(bool)
    refused = records["claimed"].astype(bool) & ~records["valid"].fillna(True).astype(bool)
    letters = np.select(
        [~clean, won, refused, records["sample_id"].isin(set(doubtful))], ["w", "b", "n", "d"], default="s"
    )
    return pd.Series(letters, records.index)


def _fell(records: pd.DataFrame) -> set[str]:
    return set(records.loc[records["clean_ok"].astype(bool) & records["success"].astype(bool), "sample_id"])


def nearest(found: pd.DataFrame, most: int, eps: float | None) -> pd.DataFrame:
    """Keep the samples nearest to the decision boundary, by margin or by distance to eps; misclassified ones last."""
    if len(found) <= most:
        return found.reset_index(drop=True)
    order = boundary_gap(found, eps).sort_values(kind="stable").index
    return found.loc[order[:most]].sort_index().reset_index(drop=True)


def boundary_gap(found: pd.DataFrame, eps: float | None) -> pd.Series:
    """Return how far each sample is from the decision boundary, in margin or distance; misclassified ones are last."""
    gap = found["margin"] if eps is None else found["distance"] - eps
    far: pd.Series = gap.abs().where(found["outcome"] != "w", np.inf).fillna(np.inf)
    return far


def _whole(column: pd.Series) -> list[int | None]:
    return [None if pd.isna(one) else int(one) for one in column]


def _short(column: pd.Series, digits: int = 4) -> list[float | None]:
    """Round to a few significant digits; infinite values have no place in JSON."""
    return [None if pd.isna(one) or not np.isfinite(one) else float(f"{one:.{digits}g}") for one in column]


def _way(improvements: Any) -> list[list[float]]:
    """Return iteration, query and distance of the claims of one sample, thinned to a few."""
    if improvements is None:
        return []
    claims = [[one["iteration"], one["query"], float(f"{one['distance']:.4g}")] for one in improvements]
    if len(claims) <= LONGEST_WAY:
        return claims
    places = np.unique(np.linspace(0, len(claims) - 1, LONGEST_WAY).round().astype(int))
    return [claims[at] for at in places]
