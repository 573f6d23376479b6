"""The probability that an unbroken sample falls to AutoAttack, from its record.

A logistic model of the part of the clean margin that is left, and of the gradients that the attacks have spent on the
sample. `python -m benchmarks.doubt_calibration` fits it on some networks and reports it on
others (docs/doubt.md).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

COEFFICIENTS: Final = (6.947, 1.003, -3.272, -0.596)
"""Weights of 1, log(left), log(1 + gradients) and their product; written by the command."""

LIMIT: Final = 0.01
"""An unbroken sample that falls to AutoAttack with a higher probability is in doubt."""

UNMOVED: Final = 0.95
"""Above this part of the margin left the attack did not work at all, and the model says nothing: probability 1."""

L1_EFFORT: Final = 0.2
"""A gradient under L1 counts as this part of another: it moves few values, and ascents converge slowly."""

LEAST: Final = 1e-3
"""Parts below this one count as this one: a margin of almost zero may have any smaller value by chance."""


def features(left: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Return the features of the logistic model, `[samples, 4]`."""
    margin, effort = np.log(np.clip(left, LEAST, 1)), np.log1p(gradients)
    return np.stack((np.ones_like(margin), margin, effort, margin * effort), 1)


def fall_probability(
    records: pd.DataFrame, norm: str | None = None, coefficients: Sequence[float] = COEFFICIENTS
) -> pd.Series:
    """Return the probability that each unbroken sample falls to AutoAttack; zero for the others."""
    unbroken = (records["clean_ok"].astype(bool) & ~records["success"].astype(bool)).to_numpy()
    left = (records["margin"] / records["clean_margin"]).fillna(1).to_numpy(float)
    effort = records["backwards"].to_numpy(float) * (L1_EFFORT if norm == "L1" else 1)
    odds = features(left, effort) @ np.asarray(coefficients)
    probability = np.where(left > UNMOVED, 1.0, 1 / (1 + np.exp(-odds)))
    return pd.Series(np.where(unbroken, probability, 0.0), index=records.index)
