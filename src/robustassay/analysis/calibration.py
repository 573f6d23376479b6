"""Calibration: whether confidence equals accuracy (Guo et al. 2017; Croce et al. 2021, section 4).

The expected calibration error (ECE) has 15 bins of equal width, each open below and closed above. Temperatures are
fitted to the likelihood, on images other than those they are measured on; the seed paper's variant minimises the ECE of
the images that it reports, so its ECE is too low.
"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

BINS: Final = 15
RESAMPLES: Final = 500
COOLEST, HOTTEST = 1e-3, 1e3


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of one model."""

    accuracy: float
    confidence: float  # its mean
    ece: float
    low: float  # 95 % bootstrap interval of the ECE
    high: float
    temperature: float  # of the highest likelihood; below 1 for an underconfident model
    ece_scaled: float  # each half of the images scaled by the temperature of the other
    seed_temperature: float  # of the lowest ECE on these same images, as in the seed paper
    seed_ece: float
    bins: pd.DataFrame  # the reliability diagram


def calibrate(logits: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> Calibration:
    """Measure the calibration of `[n, classes]` logits, before and after a temperature."""
    z, y = np.asarray(logits, np.float64), np.asarray(labels, np.int64)
    if z.ndim != 2 or len(z) != len(y) or len(y) < 4:
        raise BadRequest("Calibration needs the logits of four images or more, and as many labels.")
    confidence, correct = confidences(z), z.argmax(1) == y
    halves = np.arange(len(y)) % 2 == 0
    scaled = np.empty_like(confidence)
    for half in (halves, ~halves):
        scaled[half] = confidences(z[half], fit_temperature(z[~half], y[~half]))
    seed_temperature, seed_ece = lowest_ece(z, y, bins)
    low, high = _bootstrap(confidence, correct, bins)
    return Calibration(
        accuracy=float(correct.mean()),
        confidence=float(confidence.mean()),
        ece=ece(confidence, correct, bins),
        low=low,
        high=high,
        temperature=fit_temperature(z, y),
        ece_scaled=ece(scaled, correct, bins),
        seed_temperature=seed_temperature,
        seed_ece=seed_ece,
        bins=reliability(confidence, correct, bins),
    )


def confidences(logits: Numbers, temperature: float = 1.0) -> Numbers:
    """Return the largest probability of each row."""
    from scipy.special import softmax

    largest: Numbers = softmax(logits / temperature, axis=1).max(1)
    return largest


def ece(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = BINS) -> float:
    """Return the mean gap between confidence and accuracy over the bins, weighted by their images."""
    sure, right = np.asarray(confidence, np.float64), np.asarray(correct, bool)
    at = _bin(sure, bins)
    gaps = np.bincount(at, sure, bins) - np.bincount(at, right, bins)
    return float(np.abs(gaps).sum() / len(sure))


def reliability(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = BINS) -> pd.DataFrame:
    """Return one row per bin: low, high, images, mean confidence and accuracy; NaN if the bin is empty."""
    sure, right = np.asarray(confidence, np.float64), np.asarray(correct, bool)
    at = _bin(sure, bins)
    images = np.bincount(at, minlength=bins)
    held = np.where(images > 0, images, np.nan)
    edges = np.arange(bins + 1) / bins
    return pd.DataFrame(
        {
            "low": edges[:-1],
            "high": edges[1:],
            "images": images,
            "confidence": np.bincount(at, sure, bins) / held,
            "accuracy": np.bincount(at, right, bins) / held,
        }
    )


def fit_temperature(logits: Numbers, labels: Whole) -> float:
    """Return the maximum-likelihood temperature; the likelihood is unimodal in its logarithm."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    rows = np.arange(len(labels))

    def loss(log_temperature: float) -> float:
        z = logits / np.exp(log_temperature)
        return float((logsumexp(z, axis=1) - z[rows, labels]).mean())

    found = minimize_scalar(loss, bounds=(np.log(COOLEST), np.log(HOTTEST)), method="bounded")
    return float(np.exp(found.x))


def lowest_ece(logits: Numbers, labels: Whole, bins: int = BINS) -> tuple[float, float]:
    """Search RobustBench's grid, 0.001 to 0.999 and its reciprocals, for the temperature of the lowest ECE."""
    below = np.arange(1, 1000) / 1000
    correct = logits.argmax(1) == labels
    best, lowest = 1.0, ece(confidences(logits), correct, bins)
    lead = logits - logits.max(1, keepdims=True)
    for temperature in np.concatenate((below, 1 / below)):
        found = ece(1 / np.exp(lead / temperature).sum(1), correct, bins)
        if found < lowest:
            best, lowest = float(temperature), found
    return best, lowest


def _bin(confidence: Numbers, bins: int) -> Whole:
    at: Whole = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    return at


def _bootstrap(confidence: Numbers, correct: npt.NDArray[np.bool_], bins: int) -> tuple[float, float]:
    draw = np.random.default_rng(0)
    n = len(confidence)
    picks = (draw.integers(n, size=n) for _ in range(RESAMPLES))
    low, high = np.quantile([ece(confidence[pick], correct[pick], bins) for pick in picks], [0.025, 0.975])
    return float(low), float(high)
