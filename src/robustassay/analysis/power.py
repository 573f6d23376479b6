"""Sample sizes: how many samples a comparison of two models needs."""

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from robustassay.analysis.intervals import checked
from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]


def samples_needed(
    first: float, second: float, disagreement: float | None = None, power: float = 0.8, confidence: float = 0.95
) -> int:
    """Return how many samples McNemar's exact test needs to separate two robust accuracies, with this power.

    Models mostly fail on the same samples; `disagreement`, the part on which one alone stands, says how much so.
    A pilot run gives it (`Paired.disagreement`). Without one the models are taken to fail independently, which
    asks for more samples than most pairs need.
    """
    if not 0 < power < 1:
        raise BadRequest(f"power must lie between 0 and 1, such as 0.8, not {power}.")
    if first == second:
        raise BadRequest("Two equal accuracies are never told apart: give two that differ.")
    ahead, behind = _alone(first, second, disagreement)
    enough = _first_guess(ahead, behind, power, checked(confidence))
    while power_of(enough, ahead, behind, confidence) < power:
        enough *= 2
    too_few = 0
    while enough - too_few > 1:  # the exact power rises with the samples but for ripples of a thousandth
        middle = (enough + too_few) // 2
        if power_of(middle, ahead, behind, confidence) < power:
            too_few = middle
        else:
            enough = middle
    return enough


def power_of(samples: int, ahead: float, behind: float, confidence: float = 0.95) -> float:
    """Return the power of McNemar's exact test; `ahead` is the share on which only the better side is robust."""
    from scipy.stats import binom

    differ = ahead + behind
    spread = 8 * (samples * differ * (1 - differ)) ** 0.5 + 8
    low, high = max(0, int(samples * differ - spread)), min(samples, int(samples * differ + spread) + 1)
    many = np.arange(low, high + 1)  # of samples on which one side alone stands; others are out of the question
    most = binom.ppf((1 - confidence) / 2, many, 0.5)
    most = np.where(2 * binom.cdf(most, many, 0.5) <= 1 - confidence, most, most - 1)
    told: Numbers = binom.cdf(most, many, behind / differ)
    return float((binom.pmf(many, samples, differ) * told).sum())


def _alone(first: float, second: float, disagreement: float | None) -> tuple[float, float]:
    """Return the shares on which only the better side, and only the other side, is robust."""
    if not (0 <= first <= 1 and 0 <= second <= 1):
        raise BadRequest(f"An accuracy lies between 0 and 1; {first} and {second} do not both.")
    better, worse = max(first, second), min(first, second)
    if disagreement is None:
        return better * (1 - worse), worse * (1 - better)
    least, most = better - worse, min(better + worse, 2 - better - worse)
    if not least - 1e-12 <= disagreement <= most + 1e-12:
        raise BadRequest(
            f"Accuracies of {first} and {second} differ on {least:.4g} to {most:.4g} of the samples, "
            f"not on {disagreement:.4g}."
        )
    return (disagreement + least) / 2, max(0.0, (disagreement - least) / 2)


def _first_guess(ahead: float, behind: float, power: float, confidence: float) -> int:
    """Return the sample size by the normal approximation (Connor 1987)."""
    z = NormalDist().inv_cdf
    differ, gap = ahead + behind, ahead - behind
    spread = z(0.5 + confidence / 2) * differ**0.5 + z(power) * max(0.0, differ - gap**2) ** 0.5
    return max(1, int(np.ceil((spread / gap) ** 2)))
