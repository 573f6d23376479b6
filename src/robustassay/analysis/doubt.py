"""The probability that an unbroken sample falls to AutoAttack, from its record.

A logistic model of the part of the clean margin that is left, of the gradients that the attacks have spent on the
sample, and of whether express or AutoAttack was among the attacks. `python -m benchmarks.doubt_calibration` fits it on
some networks and reports it on others (docs/doubt.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import pandas as pd

from robustassay.analysis import rates

COEFFICIENTS: Final = (-2.856, -1.83, -0.332, 0.151, -2.463)
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


def features(left: np.ndarray, gradients: np.ndarray, standard: np.ndarray | bool) -> np.ndarray:
    """Return the features of the logistic model, `[samples, 5]`: 1, log-odds of left, effort, product, kind."""
    part = np.clip(left, LEAST, MOST)
    log_odds, effort = np.log(part / (1 - part)), np.log1p(gradients)
    kind = np.broadcast_to(np.asarray(standard, float), part.shape)
    return np.stack((np.ones_like(part), log_odds, effort, log_odds * effort, kind), 1)


def probability_of(
    left: np.ndarray, gradients: np.ndarray, standard: np.ndarray | bool, coefficients: Sequence[float] = COEFFICIENTS
) -> np.ndarray:
    """Return the probability that unbroken samples fall, from the part of the margin left and the effort."""
    log_odds = features(left, gradients, standard) @ np.asarray(coefficients)
    probability: np.ndarray = np.where(left > UNMOVED, 1.0, 1 / (1 + np.exp(-log_odds)))
    return probability


def fall_probability(records: pd.DataFrame, traits: AttackTraits = AttackTraits()) -> pd.Series:  # noqa: B008, frozen
    """Return the probability that each unbroken sample falls to AutoAttack; zero for the others."""
    unbroken = rates.unbroken(records).to_numpy()
    left = (records["margin"] / records["clean_margin"]).fillna(1).to_numpy(float)
    gradients = records["backwards"].to_numpy(float) * traits.effort
    return pd.Series(np.where(unbroken, probability_of(left, gradients, traits.standard), 0.0), index=records.index)
