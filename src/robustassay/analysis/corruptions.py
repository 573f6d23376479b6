"""Accuracy under common corruptions, from predictions: columns model, kind, severity, sample_id and correct.

Clean images are the kind "clean" at severity 0; they count in no mean over corruptions.
"""

from statistics import NormalDist
from typing import Final

import numpy as np
import pandas as pd

from robustassay.errors import BadRequest, UnknownName

CLEAN: Final = "clean"


def by_kind(answers: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy per model (rows) and kind (columns, clean first): the plain mean over severities."""
    cells = answers.groupby(["model", "kind", "severity"], sort=False)["correct"].mean()
    return cells.groupby(["model", "kind"], sort=False).mean().unstack(sort=False)


def by_severity(answers: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy per model and severity (rows) and kind (columns)."""
    corrupted = answers[answers["kind"] != CLEAN]
    return corrupted.groupby(["model", "severity", "kind"], sort=False)["correct"].mean().unstack(sort=False)


def mean_accuracy(answers: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """Return each model's plain mean accuracy over all kinds and severities, and its interval.

    Results of one sample are dependent, so the interval is that of the mean of per-sample means.
    """
    corrupted = answers[answers["kind"] != CLEAN]
    samples = corrupted.groupby(["model", "sample_id"], sort=False)["correct"].mean()
    table = samples.groupby("model", sort=False).agg(["mean", "std", "size"])
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * table["std"].fillna(0) / np.sqrt(table["size"])
    low, high = (table["mean"] - reach).clip(lower=0), (table["mean"] + reach).clip(upper=1)
    return pd.DataFrame({"accuracy": table["mean"], "low": low, "high": high})


def corruption_errors(answers: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return each model's error per kind divided by the baseline's (CE), both summed over severities."""
    errors = 1 - by_kind(answers).drop(columns=CLEAN, errors="ignore")
    if baseline not in errors.index:
        raise UnknownName("measured model", baseline, map(str, errors.index))
    of_baseline = errors.loc[baseline]
    if (of_baseline == 0).any():
        kind = of_baseline.index[int(np.argmax(of_baseline == 0))]
        raise BadRequest(f"The baseline {baseline} makes no error under {kind}: take more images or another baseline.")
    return errors / of_baseline


def mean_corruption_error(answers: pd.DataFrame, baseline: str) -> pd.Series:
    """Return each model's mCE: the mean of its CE over kinds; the baseline's own is 1."""
    return corruption_errors(answers, baseline).mean(axis=1)
