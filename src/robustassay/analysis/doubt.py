"""The probability that an unbroken sample falls to AutoAttack, from its record and from those of its run.

A logistic model of the part of the clean margin that is left, of the gradients that the attacks have spent on the
sample, of whether express or AutoAttack was among the attacks, and of how far the margin fell beside those of the other
samples of the run: where it fell less than is usual, the attack failed rather than the sample being far from falling.
`python -m benchmarks.doubt_calibration` fits it on some networks and reports it on others (docs/doubt.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import pandas as pd

from robustassay.analysis import rates

COEFFICIENTS: Final = (-1.801, -1.83, -0.332, 0.151, -3.518, 2.234)
"""Weights of the features, in their order; written by the command."""

LIMIT: Final = 0.01
"""An unbroken sample that falls to AutoAttack with a higher probability is in doubt."""

UNMOVED: Final = 0.95
"""Above this part of the margin left the attack did not work at all, and the model says nothing: probability 1."""

L1_EFFORT: Final = 0.2
"""A gradient under L1 counts as this part of another: it moves few values, and ascents converge slowly."""

LEAST: Final = 1e-3
"""Parts below this one count as this one: a margin of almost zero may have any smaller value by chance."""

MOST: Final = 0.9
"""Parts above this one count as this one: such samples are all far from the boundary."""

FURTHEST: Final = 3.0
"""Logarithm of the quotient of two falls above which a larger one counts as this one."""


@final
@dataclass(frozen=True)
class AttackTraits:
    """What records do not say about the attacks that made them."""

    norm: str | None = None
    standard: bool = False
    """Whether express or AutoAttack, at least as strong as by default, was among the attacks."""

    @property
    def effort(self) -> float:
        """How much a gradient counts."""
        return L1_EFFORT if self.norm == "L1" else 1.0


def features(rows: pd.DataFrame) -> np.ndarray:
    """Return the features of the logistic model, `[samples, 6]`, from the columns of `described`."""
    part = rows["left"].clip(LEAST, MOST).to_numpy(float)
    log_odds, effort = np.log(part / (1 - part)), np.log1p(rows["gradients"].to_numpy(float))
    kind, behind = rows["standard"].to_numpy(float), rows["behind"].to_numpy(float)
    return np.stack((np.ones_like(part), log_odds, effort, log_odds * effort, kind, behind), 1)


def described(records: pd.DataFrame, traits: AttackTraits) -> pd.DataFrame:
    """Return what the model looks at, one row per record, with the same index.

    `behind` is the logarithm of the median fall of a margin in the run, over the fall of this one, where that is less:
    positive for a sample that the attacks moved less than others, zero for the others and for a sample alone. In the
    worst case over several attacks, each sample is compared with those of the attack that its record comes from.
    """
    clean = records["clean_margin"].astype(float)
    left = (records["margin"] / clean).fillna(1).astype(float)
    fall = (clean - records["margin"].astype(float)).clip(lower=LEAST * clean)
    known = records["clean_ok"].astype(bool) & (fall > 0)
    usual = records["usual_fall"] if "usual_fall" in records else rates.usual_fall(records)
    quotient = usual / fall.where(known)
    return pd.DataFrame(
        {
            "left": left,
            "gradients": records["backwards"].astype(float) * traits.effort,
            "standard": traits.standard,
            "behind": np.log(quotient.clip(1, float(np.exp(FURTHEST))).fillna(1)),
        }
    )


def probability_of(rows: pd.DataFrame, coefficients: Sequence[float] = COEFFICIENTS) -> np.ndarray:
    """Return the probability that unbroken samples fall, from the columns of `described`."""
    log_odds = features(rows) @ np.asarray(coefficients)
    probability: np.ndarray = np.where(rows["left"] > UNMOVED, 1.0, 1 / (1 + np.exp(-log_odds)))
    return probability


def fall_probability(records: pd.DataFrame, traits: AttackTraits = AttackTraits()) -> pd.Series:  # noqa: B008, frozen
    """Return the probability that each unbroken sample falls to AutoAttack; zero for the others."""
    unbroken = rates.unbroken(records).to_numpy()
    probability = probability_of(described(records, traits))
    return pd.Series(np.where(unbroken, probability, 0.0), index=records.index)
