"""Out-of-distribution detection by confidence (Hendrycks & Gimpel 2017), as the area under the ROC curve."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import final

import numpy as np
import numpy.typing as npt

from robustassay.analysis.intervals import checked
from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Area:
    """The area under the ROC curve, with DeLong's standard error (1988)."""

    value: float
    error: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the normal interval, cut at 0 and 1."""
        reach = NormalDist().inv_cdf(0.5 + checked(confidence) / 2) * self.error
        return max(0.0, self.value - reach), min(1.0, self.value + reach)


def auroc(inside: npt.ArrayLike, outside: npt.ArrayLike) -> Area:
    """Return the area under the ROC curve of scores that should be higher in distribution."""
    from scipy.stats import rankdata

    one, two = np.asarray(inside, np.float64), np.asarray(outside, np.float64)
    if len(one) < 2 or len(two) < 2 or not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise BadRequest("An ROC curve needs two finite scores or more from either side.")
    ranks = rankdata(np.concatenate((one, two)))
    above = (ranks[: len(one)] - rankdata(one)) / len(two)  # of each from inside, the part of the others below it
    below = 1 - (ranks[len(one) :] - rankdata(two)) / len(one)
    error = np.sqrt(above.var(ddof=1) / len(one) + below.var(ddof=1) / len(two))
    return Area(float(above.mean()), float(error))
