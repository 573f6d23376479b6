"""Accuracy on other data, and its correlation with robustness (Croce et al. 2021, Figure 3)."""

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis.rates import Rate

Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Trend:
    """Spearman's rank correlation between two numbers per model, and its p-value."""

    value: float
    p_value: float
    models: int

    def __str__(self) -> str:
        return f"rank correlation {self.value:+.2f} (p = {self.p_value:.2g}, {self.models} models)"


def trend(one: npt.ArrayLike, two: npt.ArrayLike) -> Trend:
    """Correlate ranks; p-values by permutation where models are few. NaN pairs are left out."""
    from scipy.stats import spearmanr

    pairs = np.stack((np.asarray(one, np.float64), np.asarray(two, np.float64)))
    x, y = pairs[:, np.isfinite(pairs).all(0)]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Trend(float("nan"), 1.0, len(x))
    found = spearmanr(x, y)
    return Trend(float(found.statistic), _p_value(x, y, float(found.statistic)), len(x))


def accuracy_table(answers: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy and its interval per model and dataset, from predictions (model, data, sample_id, correct)."""
    rows = []
    for (model, data), own in answers.groupby(["model", "data"], sort=False):
        rate = Rate(int(own["correct"].sum()), len(own))
        low, high = rate.interval()
        rows.append(
            {"model": model, "data": data, "accuracy": rate.value, "low": low, "high": high, "images": len(own)}
        )
    return pd.DataFrame(rows)


def _p_value(x: Numbers, y: Numbers, seen: float, shuffles: int = 9_999) -> float:
    """Return the p-value by permutation, as tables do not hold with ties."""
    from scipy.stats import rankdata

    draw = np.random.default_rng(0)
    one, two = rankdata(x), rankdata(y)
    one, two = (one - one.mean()) / one.std(), (two - two.mean()) / two.std()
    found = draw.permuted(np.tile(two, (shuffles, 1)), axis=1) @ one / len(one)
    return float((1 + (np.abs(found) >= abs(seen) - 1e-12).sum()) / (shuffles + 1))
