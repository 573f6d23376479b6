"""How evenly accuracy is spread over classes (Croce et al. 2021, section 4), from records."""

import math
from dataclasses import dataclass, field
from typing import final

import pandas as pd

from robustassay.analysis.compare import robust_samples
from robustassay.analysis.intervals import wilson


@final
@dataclass(frozen=True, eq=False)
class Fairness:
    """Clean and robust accuracy of each class, and their relative standard deviations over classes."""

    classes: pd.DataFrame = field(repr=False)  # label, images, clean, robust, and the intervals of both

    @property
    def clean_rsd(self) -> float:
        """Of the clean accuracies."""
        return relative_deviation(self.classes["clean"])

    @property
    def robust_rsd(self) -> float:
        """Of the robust accuracies; NaN if all are 0."""
        return relative_deviation(self.classes["robust"])

    @property
    def robust_rsd_by_chance(self) -> float:
        """The average at this number of images per class if all classes were equally robust."""
        images, robust = self.classes["images"], self.classes["robust"]
        mean = float((images * robust).sum() / images.sum())
        return math.sqrt(mean * (1 - mean) * float((1 / images).mean())) / mean if mean > 0 else math.nan


def fairness(records: pd.DataFrame) -> Fairness:
    """Compute the accuracy of each class of a run."""
    robust = robust_samples(records).to_numpy(bool)
    frame = pd.DataFrame({"label": records["label"].astype(int), "clean": records["clean_ok"].to_numpy(bool)})
    by_class = frame.assign(robust=robust).groupby("label")
    found = by_class.agg(images=("clean", "size"), clean=("clean", "mean"), robust=("robust", "mean")).reset_index()
    for kind in ("clean", "robust"):
        low, high = wilson((found[kind] * found["images"]).round(), found["images"])
        found = found.assign(**{f"{kind}_low": low, f"{kind}_high": high})
    return Fairness(found)


def relative_deviation(accuracies: pd.Series) -> float:
    """Return the standard deviation over the mean; NaN if all are 0."""
    mean = float(accuracies.mean())
    return float(accuracies.std(ddof=0)) / mean if mean > 0 else math.nan
