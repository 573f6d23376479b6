"""Accuracy against robustness (Su et al. 2018, arXiv:1808.01688): the Pareto frontier, the law, and explained variance.

The law of the paper is distortion = a + b log(1 - accuracy). It is fitted there to the models on the frontier; as no
model on a frontier is both more accurate and more robust than another, its slope cannot but be positive there, so the
fit to all models is the one that can fail.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis.intervals import checked
from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]

SHUFFLES: Final = 10_000


@final
@dataclass(frozen=True)
class Law:
    """A fitted line distortion = a + b log(1 - accuracy), with what is needed for its intervals."""

    a: float
    b: float
    a_interval: tuple[float, float]
    b_interval: tuple[float, float]
    explained: float  # share of the variance
    p_value: float  # of a slope of zero
    models: int
    _middle: float
    _spread: float
    _noise: float
    _quantile: float

    def at(self, accuracy: npt.ArrayLike) -> tuple[Numbers, Numbers, Numbers]:
        """Return the law's value at these accuracies and the ends of its interval there."""
        x = _log_error(accuracy)
        value: Numbers = self.a + self.b * x
        reach = self._quantile * self._noise * np.sqrt(1 / self.models + (x - self._middle) ** 2 / self._spread)
        return value, value - reach, value + reach

    def halving(self) -> float:
        """Return the distortion lost per halving of the error."""
        return self.b * float(np.log(2))


def fit_law(accuracy: npt.ArrayLike, distortion: npt.ArrayLike, confidence: float = 0.95) -> Law:
    """Fit by least squares; intervals are Student's."""
    from scipy.stats import linregress, t

    x, y = _log_error(accuracy), np.asarray(distortion, np.float64)
    if x.shape != y.shape or len(x) < 3 or np.ptp(x) == 0:
        raise BadRequest("A law needs three models or more, not all of the same accuracy: name more with --models.")
    line = linregress(x, y)
    quantile = float(t.ppf(0.5 + checked(confidence) / 2, len(x) - 2))
    noise = float(np.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / (len(x) - 2)))
    return Law(
        a=float(line.intercept),
        b=float(line.slope),
        a_interval=_around(line.intercept, quantile * line.intercept_stderr),
        b_interval=_around(line.slope, quantile * line.stderr),
        explained=float(line.rvalue**2),
        p_value=float(line.pvalue),
        models=len(x),
        _middle=float(x.mean()),
        _spread=float(((x - x.mean()) ** 2).sum()),
        _noise=noise,
        _quantile=quantile,
    )


def frontier(accuracy: npt.ArrayLike, robustness: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Say which models are on the Pareto frontier of accuracy and robustness."""
    one, two = np.asarray(accuracy, np.float64), np.asarray(robustness, np.float64)
    no_worse = (one[:, None] >= one) & (two[:, None] >= two)
    better = (one[:, None] > one) | (two[:, None] > two)
    return np.asarray(~(no_worse & better).any(0))


@final
@dataclass(frozen=True)
class Explained:
    """The share of variance between models that one property explains."""

    share: float
    adjusted: float  # for the number of free parameters: a property that means nothing has 0 on average
    p_value: float  # how often shuffled models would show so large a share
    parameters: int


def explained_by_group(values: npt.ArrayLike, groups: Sequence[Hashable], seed: int = 0) -> Explained:
    """Explain values by the mean of each group, such as an architecture's family."""
    y = np.asarray(values, np.float64)
    names = list(dict.fromkeys(groups))
    member = np.array([[group == name for name in names] for group in groups], np.float64)
    return _explained(y, member, len(names) - 1, seed)


def explained_by_number(values: npt.ArrayLike, numbers: npt.ArrayLike, seed: int = 0) -> Explained:
    """Explain values by a straight line over a number, such as the logarithm of a size."""
    y, x = np.asarray(values, np.float64), np.asarray(numbers, np.float64)
    return _explained(y, np.stack((np.ones_like(x), x), 1), 1, seed)


def _explained(y: Numbers, design: Numbers, parameters: int, seed: int) -> Explained:
    n = len(y)
    if len(design) != n or n < 3:
        raise BadRequest("Variance needs three models or more, each with its property.")
    basis = np.linalg.svd(design, full_matrices=False)[0][:, : np.linalg.matrix_rank(design)]
    centred = y - y.mean()
    total = float((centred**2).sum())
    if total == 0:
        return Explained(np.nan, np.nan, np.nan, parameters)
    share = float(((basis.T @ centred) ** 2).sum()) / total
    left = n - 1 - parameters
    adjusted = 1 - (1 - share) * (n - 1) / left if left > 0 else np.nan
    draw = np.random.default_rng(seed)
    shuffled = draw.permuted(np.tile(centred, (SHUFFLES, 1)), axis=1)
    shares = ((shuffled @ basis) ** 2).sum(1) / total
    p_value = (1 + int((shares >= share - 1e-12).sum())) / (1 + SHUFFLES)
    return Explained(share, adjusted, p_value, parameters)


def _log_error(accuracy: npt.ArrayLike) -> Numbers:
    right = np.asarray(accuracy, np.float64)
    if not ((right >= 0) & (right < 1)).all():
        raise BadRequest("The law needs accuracies from 0 up to, and not including, 1: take more images.")
    logs: Numbers = np.log1p(-right)
    return logs


def _around(value: float, reach: float) -> tuple[float, float]:
    return float(value - reach), float(value + reach)


@final
@dataclass(frozen=True, eq=False)
class Scatter:
    """Models by accuracy and robustness, with the laws fitted to them."""

    points: pd.DataFrame  # model, family, accuracy, value, low, high (of the value)
    measure: str
    of_all: Law | None
    of_frontier: Law | None

    @property
    def on_frontier(self) -> npt.NDArray[np.bool_]:
        """Say which models are on the frontier."""
        return frontier(self.points["accuracy"], self.points["value"])

    @classmethod
    def of(cls, points: pd.DataFrame, measure: str) -> "Scatter":
        """Fit the laws; None with too few models."""
        on = frontier(points["accuracy"], points["value"])
        return cls(points, measure, _law_of(points), _law_of(points[on]))


def _law_of(points: pd.DataFrame) -> Law | None:
    return try_fit(points["accuracy"], points["value"])


def try_fit(accuracy: npt.ArrayLike, distortion: npt.ArrayLike) -> Law | None:
    """Fit the law, or return None where the models are too few or too alike."""
    try:
        return fit_law(accuracy, distortion)
    except BadRequest:
        return None
