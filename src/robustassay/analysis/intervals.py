"""Confidence intervals of rates, for one rate or an array of them."""

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]


def wilson(count: npt.ArrayLike, total: npt.ArrayLike, confidence: float = 0.95) -> tuple[Numbers, Numbers]:
    """Return Wilson's score interval (1927), whose mean coverage is the nominal one; 0 to 1 without samples."""
    found, of = _counts(count, total)
    z = NormalDist().inv_cdf(0.5 + checked(confidence) / 2)
    tried = np.maximum(of, 1)  # of nothing, the ends are set below
    rate = found / tried
    centre = (rate + z**2 / (2 * tried)) / (1 + z**2 / tried)
    reach = z / (1 + z**2 / tried) * np.sqrt(rate * (1 - rate) / tried + (z / (2 * tried)) ** 2)
    return _closed(centre - reach, centre + reach, found, of)


def clopper_pearson(count: npt.ArrayLike, total: npt.ArrayLike, confidence: float = 0.95) -> tuple[Numbers, Numbers]:
    """Return the exact interval (1934), whose coverage is at least the nominal one; wider than Wilson's."""
    from scipy.special import betaincinv

    found, of = _counts(count, total)
    outside = (1 - checked(confidence)) / 2
    low = betaincinv(np.maximum(found, 1), of - found + 1, outside)
    high = betaincinv(found + 1, np.maximum(of - found, 1), 1 - outside)
    return _closed(low, high, found, of)


def checked(confidence: float) -> float:
    """Return a valid confidence."""
    if not 0 < confidence < 1:
        raise BadRequest(f"confidence must lie between 0 and 1, such as 0.95, not {confidence}.")
    return confidence


def _counts(count: npt.ArrayLike, total: npt.ArrayLike) -> tuple[Numbers, Numbers]:
    found, of = np.broadcast_arrays(np.asarray(count, np.float64), np.asarray(total, np.float64))
    return found, of


def _closed(low: Numbers, high: Numbers, found: Numbers, of: Numbers) -> tuple[Numbers, Numbers]:
    """Set the ends to exactly 0 and 1 where no or all samples count, which rounding would miss."""
    return np.where(found == 0, 0.0, low), np.where(found == of, 1.0, high)
