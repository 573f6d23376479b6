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

    Models mostly fail on the same samples; `disagreement` is the share on which only one is robust. A pilot run gives
    it (`Paired.disagreement`). Without it the models are assumed to fail independently, which needs more samples than
    most pairs.
    """
    if not 0 < power < 1:
        raise BadRequest(f"power must lie between 0 and 1, such as 0.8, not {power}.")
    if first == second:
        raise BadRequest("No test separates two equal accuracies: give two that differ.")
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
    many = np.arange(
        low, high + 1
    )  # samples on which only one side is robust; other counts have negligible probability
    most = binom.ppf((1 - confidence) / 2, many, 0.5)
    most = np.where(2 * binom.cdf(most, many, 0.5) <= 1 - confidence, most, most - 1)
    detected: Numbers = binom.cdf(most, many, behind / differ)
    return float((binom.pmf(many, samples, differ) * detected).sum())


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
