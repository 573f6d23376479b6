"""Certificates of randomized smoothing from counts of votes (Cohen et al. 2019, arXiv:1902.02918)."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt
from scipy import special

from robustassay.errors import BadRequest

ABSTAIN: Final = -1
"""The label of an image without a certificate."""

Numbers = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Certificates:
    """One entry per image: the smoothed label is `label` everywhere within L2 distance `radius`, or it abstains."""

    label: Labels
    radius: Numbers
    confidence: Numbers  # lower bound on the probability of the label under noise

    def holds(self, labels: Labels, radius: float) -> npt.NDArray[np.bool_]:
        """Return, per image, whether the true label is certified within this radius."""
        certified: npt.NDArray[np.bool_] = (self.label == labels) & (self.radius >= radius)
        return certified


def certify(
    guess: Labels, votes: Labels, draws: int, sigma: float, alpha: float, simultaneous: int = 1
) -> Certificates:
    """Compute the certified radius from the votes for a label; a certificate is wrong with probability alpha at most.

    The label must come from other draws than the votes. With `simultaneous` = k, all of k certificates hold together
    with probability 1 - alpha (Bonferroni).
    """
    if not 0 < alpha < 1 or simultaneous < 1:
        raise BadRequest(f"alpha must be between 0 and 1, and simultaneous 1 or more, not {alpha}, {simultaneous}.")
    lower = clopper_pearson(votes, draws, alpha / simultaneous)
    proven = lower > 0.5
    # Below one half the radius would be negative: nothing is certified.
    radius = np.where(proven, sigma * special.ndtri(np.where(proven, lower, 0.75)), 0.0)
    return Certificates(np.where(proven, guess, ABSTAIN), radius, lower)


def clopper_pearson(hits: Labels, draws: int, alpha: float) -> Numbers:
    """Return the lower end of the exact one-sided interval for a probability, at confidence 1 - alpha."""
    hits = np.asarray(hits)
    lower: Numbers = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), draws - hits + 1, alpha), 0.0)
    return lower


def majority(counts: Labels, alpha: float) -> Labels:
    """Return the most frequent label of each row of `[n, classes]` counts, or abstain if it is not significant.

    The two most frequent labels are compared by an exact two-sided test against a fair coin (Hung and Fithian 2019).
    """
    second, first = np.sort(counts, axis=1)[:, -2:].T
    # The chance of `first` heads or more in `first + second` throws. scipy.stats has it too, but imports slowly.
    chance = np.minimum(1.0, 2 * special.betainc(first, second + 1, 0.5))
    label: Labels = np.where(chance <= alpha, counts.argmax(1), ABSTAIN)
    return label
