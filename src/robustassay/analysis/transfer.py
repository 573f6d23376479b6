"""Transfer of adversarial examples between models: rates per pair, shared mistakes, wrong labels.

All of it is derived from outcomes, a table with one row per example and tested model:

    source, target     names of the model it was crafted on and of the tested model
    sample             which example of the source
    label, aim         the true class, and the target class (missing if untargeted)
    source_ok          the source classifies the clean image correctly
    target_ok          so does the target, at its input size
    predicted          the target's prediction for the example
    label_rank         rank of the true class, 0 for the most likely
    aim_rank           rank of the target class
"""

from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np
import pandas as pd

from robustassay.analysis.intervals import wilson
from robustassay.analysis.rates import Rate
from robustassay.errors import BadRequest

Measure = Literal["error", "accuracy", "matching"]
"""error: the true class is not in the top k; accuracy: it is; matching: the target class is."""

Among = Literal["all", "source correct", "both correct"]
"""Which examples a rate counts: all (Liu et al. choose images that every model classifies correctly), those whose clean
image the source classifies correctly (Su et al.: errors of the target without an attack count as transfer), or those
whose clean image both classify correctly."""

COLUMNS: Final = (
    "source",
    "target",
    "sample",
    "label",
    "aim",
    "source_ok",
    "target_ok",
    "predicted",
    "label_rank",
    "aim_rank",
)


@final
@dataclass(frozen=True, eq=False)
class TransferMatrix:
    """Rates of examples crafted on one model (rows) and tested on another (columns); the diagonal is white-box."""

    counts: pd.DataFrame  # source x target: examples for which the measure holds
    totals: pd.DataFrame  # source x target: examples that count
    measure: Measure
    top: int
    among: Among

    @property
    def rates(self) -> pd.DataFrame:
        """Rates by source and target; NaN without samples."""
        return self.counts / self.totals.where(self.totals > 0)

    def interval(self, confidence: float = 0.95) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the ends of each entry's Wilson interval."""
        low, high = wilson(self.counts.to_numpy(), self.totals.to_numpy(), confidence)
        index, columns = self.counts.index, self.counts.columns
        return pd.DataFrame(low, index, columns), pd.DataFrame(high, index, columns)

    def rate(self, source: str, target: str) -> Rate:
        """Return one entry."""
        return Rate(int(self.counts.loc[source, target]), int(self.totals.loc[source, target]))  # type: ignore[arg-type]

    @property
    def images(self) -> str:
        """Write how many examples an entry counts: one number, or from the fewest to the most."""
        fewest, most = int(self.totals.to_numpy().min()), int(self.totals.to_numpy().max())
        return f"{most} images" if fewest == most else f"{fewest} to {most} images"

    @property
    def title(self) -> str:
        """Describe what an entry counts, and its denominator."""
        what = {"error": "error rate", "accuracy": "accuracy", "matching": "matching rate"}[self.measure]
        of = {
            "all": "of all examples",
            "source correct": "where the source is right on the clean image",
            "both correct": "where both models are right on the clean image",
        }[self.among]
        return f"top-{self.top} {what} {of}"


def matrix(outcomes: pd.DataFrame, measure: Measure = "error", top: int = 1, among: Among = "all") -> TransferMatrix:
    """Count how often the measure holds per source and target, in the order of the outcomes."""
    if top < 1:
        raise BadRequest(f"top must be at least 1, not {top}.")
    if among != "all" and outcomes["source_ok"].isna().any():
        raise BadRequest(
            "Whether a source classifies its clean images correctly is not known: show its examples to the source "
            "itself too, or count all examples."
        )
    counted = outcomes if among == "all" else outcomes[outcomes["source_ok"].astype(bool)]
    counted = counted[counted["target_ok"]] if among == "both correct" else counted
    held = holds(counted, measure, top)
    pairs = held.groupby([counted["source"], counted["target"]], sort=False).agg(["sum", "count"])
    rows, columns = outcomes["source"].unique(), outcomes["target"].unique()
    counts, totals = (
        pairs[what].unstack().reindex(index=rows, columns=columns, fill_value=0).fillna(0).astype(int)
        for what in ("sum", "count")
    )
    return TransferMatrix(counts, totals, measure, top, among)


def holds(outcomes: pd.DataFrame, measure: Measure, top: int = 1) -> pd.Series:
    """Say per outcome whether the measure holds."""
    if measure == "matching":
        if outcomes["aim_rank"].isna().any():
            raise BadRequest("Untargeted examples have no target to match: ask for their error rate or accuracy.")
        return (outcomes["aim_rank"] < top).astype(bool)
    right = (outcomes["label_rank"] < top).astype(bool)
    return right if measure == "accuracy" else ~right


def same_mistakes(outcomes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count, on one source's examples, how often two models make the same mistake, and how often both are wrong.

    Returns the counts of same mistakes and of common ones, target x target and symmetric (Liu et al., Table 9).
    """
    if outcomes["source"].nunique() > 1:
        raise BadRequest("Same mistakes are counted for the examples of one source: select its outcomes.")
    predicted = outcomes.pivot(index="sample", columns="target", values="predicted")[outcomes["target"].unique()]
    label = outcomes.drop_duplicates("sample").set_index("sample")["label"].loc[predicted.index]
    labels = predicted.to_numpy(np.int64)
    wrong = labels != label.to_numpy(np.int64)[:, None]
    both = wrong[:, :, None] & wrong[:, None, :]
    same = both & (labels[:, :, None] == labels[:, None, :])
    names = list(predicted.columns)
    return pd.DataFrame(same.sum(0), names, names), pd.DataFrame(both.sum(0), names, names)


def wrong_labels(outcomes: pd.DataFrame, most: int = 5) -> pd.DataFrame:
    """Return the most common wrong labels of each target: columns target, label, count, part (of all examples)."""
    wrong = outcomes[outcomes["predicted"] != outcomes["label"]]
    found = []
    for target in outcomes["target"].unique():
        shown = int((outcomes["target"] == target).sum())
        common = wrong.loc[wrong["target"] == target, "predicted"].value_counts()
        ranked = sorted(common.items(), key=lambda item: (-item[1], item[0]))[:most]  # ties are ordered by class
        found += [(target, label, count, count / shown) for label, count in ranked]
    return pd.DataFrame(found, columns=["target", "label", "count", "part"])
