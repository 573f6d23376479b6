"""The end point of a distribution of maxima: a reverse Weibull distribution, fitted by maximum likelihood."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt

from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]

CLOSEST, FARTHEST, PLACES = -12.0, 9.0, 43
"""The grid of end points: log distance from the largest value, in units of the values' range."""

LEAST_CHANCE: Final = 1e-3
"""A fit with a smaller p-value is rejected (the threshold of CLEVER's authors)."""

NEWTON: Final = 60
"""Newton steps for the shape, at most; about six suffice."""

PENALTY: Final = 0.01
"""Times the squared scale, in units of the values' range, taken off the log-likelihood, as in the program of CLEVER's
authors. Without it, values that look endless have no estimate: their likelihood grows, ever more slowly, with it."""


@final
@dataclass(frozen=True)
class Fit:
    """A reverse Weibull distribution `exp(-((end - x) / scale) ** shape)` for x below its end point.

    Where none fits, the end is the largest value itself, and `fallback` says why.
    """

    end: float
    shape: float
    scale: float
    p_value: float  # of Kolmogorov and Smirnov's test of the values against the fit; of the failed one, if there was
    fallback: str = ""  # why the largest value is taken as the end

    @property
    def fell_back(self) -> bool:
        """Whether the end point is only the largest value."""
        return bool(self.fallback)


def fit_reverse_weibull(maxima: npt.ArrayLike) -> Fit:
    """Fit by penalised maximum likelihood, or take the largest value where it has no peak or the fit is poor.

    For a given end, scale and shape follow from one equation, so only the end is searched. The likelihood grows
    without limit as the end comes down on the largest value with a shape below 1; only a peak above it is an estimate.
    The penalty keeps the end of values that look endless at a finite distance.
    """
    values = np.asarray(maxima, np.float64).ravel()
    if len(values) < 2 or not np.isfinite(values).all():
        raise BadRequest("A fit needs at least two finite values: take more batches, and look for gradients of NaN.")
    top, span = float(values.max()), float(np.ptp(values))
    if span <= 1e-9 * max(abs(top), 1e-30):
        return Fit(top, np.nan, 0.0, np.nan, "all values are equal")
    below = (top - values) / span
    place = _peak(below)
    if place is None:
        return Fit(top, np.nan, np.nan, np.nan, "the likelihood has no peak")
    gaps = below + np.exp(place)
    shape = float(_shapes(gaps[None])[0])
    scale = float(np.exp(_log_mean_power(np.log(gaps)[None], np.array([shape]))[0] / shape))
    p_value = _ks(gaps, shape, scale)
    if not p_value >= LEAST_CHANCE:
        return Fit(top, shape, scale * span, p_value, "the fit is poor")
    return Fit(top + span * float(np.exp(place)), shape, scale * span, p_value)


def _peak(below: Numbers) -> float | None:
    """Return the log distance at the highest peak of the likelihood; None if it has no peak."""
    from scipy.optimize import minimize_scalar

    places = np.linspace(CLOSEST, FARTHEST, PLACES)
    likelihood, shapes = _profile(below, places)
    inner = np.flatnonzero((likelihood[1:-1] > likelihood[:-2]) & (likelihood[1:-1] >= likelihood[2:])) + 1
    inner = inner[shapes[inner] > 1]
    if not len(inner):
        return None
    at = inner[likelihood[inner].argmax()]
    bounds = (places[at - 1], places[at + 1])
    found = minimize_scalar(lambda place: -_profile(below, np.array([place]))[0][0], bounds=bounds, method="bounded")
    return float(found.x)


def _profile(below: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
    """Return the penalised profile log-likelihood at each end point, and the best shape there."""
    gaps = below + np.exp(places)[:, None]
    shapes = _shapes(gaps)
    logs = np.log(gaps)
    power = _log_mean_power(logs, shapes)
    likelihood = np.log(shapes) - power + (shapes - 1) * logs.mean(1) - 1
    scales = np.exp(np.minimum(power / shapes, FARTHEST))
    return len(below) * likelihood - PENALTY * scales**2, shapes


def _shapes(gaps: Numbers) -> Numbers:
    """Solve the equation of the best shape per row, by Newton's method within brackets."""
    logs = np.log(gaps)
    mean = logs.mean(1)
    shapes: Numbers = np.clip(1.28 / logs.std(1), 1e-2, 1e6)  # right for values that are Weibull's
    low, high = np.full(len(gaps), 1e-3), np.full(len(gaps), 1e7)
    for _ in range(NEWTON):
        scaled = shapes[:, None] * logs
        weights = np.exp(scaled - scaled.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        first = (weights * logs).sum(1)
        excess = first - 1 / shapes - mean
        low, high = np.where(excess < 0, shapes, low), np.where(excess < 0, high, shapes)
        slope = (weights * (logs - first[:, None]) ** 2).sum(1) + 1 / shapes**2
        step = shapes - excess / slope
        shapes = np.where((low < step) & (step < high), step, np.sqrt(low * high))
        if (np.abs(excess) < 1e-13 * slope * shapes).all():
            break
    return shapes


def _log_mean_power(logs: Numbers, shapes: Numbers) -> Numbers:
    from scipy.special import logsumexp

    mean: Numbers = logsumexp(shapes[:, None] * logs, axis=1) - np.log(logs.shape[1])
    return mean


def _ks(gaps: Numbers, shape: float, scale: float) -> float:
    """Return the p-value of the Kolmogorov-Smirnov test; slightly too high, as the fit used the same values."""
    from scipy.stats import kstest, weibull_min

    return float(kstest(gaps, weibull_min(shape, 0, scale).cdf).pvalue)
