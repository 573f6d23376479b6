"""Privacy leakage: membership inference by a model's confidence (Song et al. 2019; Croce et al. 2021).

An image is called a member if the model's confidence in its true label is high. The baseline uses only whether the
prediction is correct, and reaches one half plus half the generalisation gap; confidence leaks what lies above it.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from robustassay.analysis.ood import Area, auroc
from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Leak:
    """The balanced accuracy of membership inference, and its baseline."""

    accuracy: float  # the threshold of each half of the images is applied to the other half
    error: float  # standard error of the accuracy
    baseline: float  # of inference by correctness alone
    gap: float  # accuracy on members minus that on others
    area: Area


def infer(
    members: npt.ArrayLike, others: npt.ArrayLike, members_right: npt.ArrayLike, others_right: npt.ArrayLike
) -> Leak:
    """Infer membership by the confidence in the true label; the baseline is by whether the prediction is correct."""
    inside, outside = np.asarray(members, np.float64), np.asarray(others, np.float64)
    if min(len(inside), len(outside)) < 4:
        raise BadRequest("Membership inference needs at least four training images and four others.")
    right_in, right_out = np.empty(len(inside), bool), np.empty(len(outside), bool)
    for half in (0, 1):
        limit = threshold(inside[1 - half :: 2], outside[1 - half :: 2])
        right_in[half::2], right_out[half::2] = inside[half::2] >= limit, outside[half::2] < limit
    rates = [(float(right.mean()), len(right)) for right in (right_in, right_out)]
    gap = float(np.asarray(members_right, np.float64).mean() - np.asarray(others_right, np.float64).mean())
    error = np.sqrt(sum(rate * (1 - rate) / n for rate, n in rates)) / 2
    return Leak((rates[0][0] + rates[1][0]) / 2, float(error), 0.5 + gap / 2, gap, auroc(inside, outside))


def threshold(members: Numbers, others: Numbers) -> float:
    """Return the threshold of the highest balanced accuracy."""
    edges = np.unique(np.concatenate((members, others)))
    caught = 1 - np.searchsorted(np.sort(members), edges, side="left") / len(members)
    spared = np.searchsorted(np.sort(others), edges, side="left") / len(others)
    return float(edges[int(np.argmax(caught + spared))])
