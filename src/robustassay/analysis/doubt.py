"""The probability that an unbroken sample falls to AutoAttack, from its record and from those of its run.

A logistic model of the part of the clean margin that is left, of the gradients that the attacks have spent on the
sample, of whether express or AutoAttack was among the attacks, and of whether margins still fell late: that of the
sample, and those of all samples of the run, as they do on networks where short attacks end in different maxima.
`python -m benchmarks.doubt_calibration` fits it on some networks and reports it on others (docs/doubt.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import pandas as pd

from robustassay.analysis import rates

COEFFICIENTS: Final = (-2.856, -1.83, -0.332, 0.151, -2.463, 0.0, 0.0, 0.0)
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

EARLY: Final = 24
"""Queries, more under L1, after which margins fall late."""

CLEAR: Final = 0.2
"""Samples with more of their margin left after `EARLY` queries show whether margins of a run still fall."""

SMOOTH: Final = 0.01
"""The mean part by which such margins still fall where nothing else is known, and how many samples that weighs."""

SMOOTH_WEIGHT: Final = 10


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
    """Return the features of the logistic model, `[samples, 8]`, from the columns of `described`."""
    part = rows["left"].clip(LEAST, MOST).to_numpy(float)
    log_odds, effort = np.log(part / (1 - part)), np.log1p(rows["gradients"].to_numpy(float))
    late, rough = rows["late"].to_numpy(float), np.log(rows["rough"].to_numpy(float) / SMOOTH)
    kind = rows["standard"].to_numpy(float)
    return np.stack((np.ones_like(part), log_odds, effort, log_odds * effort, kind, late, rough, rough * log_odds), 1)


def described(records: pd.DataFrame, traits: AttackTraits) -> pd.DataFrame:
    """Return what the model looks at, one row per record, with the same index."""
    left = (records["margin"] / records["clean_margin"]).fillna(1).astype(float)
    traced = _left_early(records, EARLY / traits.effort)
    early = traced.fillna(left)
    fell = (1 - left / early.clip(lower=LEAST)).clip(0, 1).mask(records["success"].astype(bool), 1.0)
    clear = fell[records["clean_ok"].astype(bool) & (traced > CLEAR)]  # without a trace, nothing is known
    return pd.DataFrame(
        {
            "left": left,
            "gradients": records["backwards"].astype(float) * traits.effort,
            "standard": traits.standard,
            "late": np.log(early.clip(lower=LEAST) / left.clip(lower=LEAST)).clip(lower=0),
            "rough": (clear.sum() + SMOOTH * SMOOTH_WEIGHT) / (len(clear) + SMOOTH_WEIGHT),
        }
    )


def _left_early(records: pd.DataFrame, queries: float) -> pd.Series:
    """Return the part of the margin left after so many queries; NaN where there is no trace."""
    if "trace_queries" not in records:
        return pd.Series(np.nan, index=records.index)
    traces = zip(records["trace_queries"], records["trace_margins"], records["clean_margin"], strict=True)
    return pd.Series([_at(queries, *trace) for trace in traces], index=records.index, dtype=float)


def _at(queries: float, asked: Any, margins: Any, clean: float) -> float:
    if np.ndim(asked) == 0 or margins is None:  # records of schema 2
        return float("nan")
    known = [margin for query, margin in zip(asked, margins, strict=True) if query <= queries]
    return known[-1] / clean if known else float("nan")


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
