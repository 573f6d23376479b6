"""Paired comparison of two models, or two attacks, on the same samples."""

from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from robustassay.analysis import rates
from robustassay.analysis.intervals import checked
from robustassay.errors import BadRequest


@final
@dataclass(frozen=True)
class Paired:
    """How many samples withstand the attack on both sides, on one side only, and on neither."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def samples(self) -> int:
        """Number of samples that both sides have."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """The rate of the first side minus that of the second."""
        return (self.only_first - self.only_second) / self.samples if self.samples else float("nan")

    @property
    def disagreement(self) -> float:
        """Share of the samples on which the sides differ."""
        return (self.only_first + self.only_second) / self.samples if self.samples else float("nan")

    @property
    def chance(self) -> float:
        """Two-sided p-value of the exact McNemar test."""
        return mcnemar(self.only_first, self.only_second)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return Bonett and Price's interval of the difference (2012), reliable where few samples differ."""
        from scipy.special import ndtri

        n = self.samples + 2
        first, second = (self.only_first + 1) / n, (self.only_second + 1) / n
        reach = float(ndtri(0.5 + checked(confidence) / 2)) * ((first + second - (first - second) ** 2) / n) ** 0.5
        return max(-1.0, first - second - reach), min(1.0, first - second + reach)

    def bootstrap(self, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0) -> tuple[float, float]:
        """Return the percentile bootstrap interval of the difference; it has no width where no sample differs.

        Samples drawn with replacement fall into the four kinds as a multinomial, so only the four counts are resampled.
        """
        kinds = np.array([self.only_first, self.only_second, self.both + self.neither])
        if not self.samples:
            return -1.0, 1.0
        drawn = np.random.default_rng(seed).multinomial(self.samples, kinds / self.samples, resamples)
        outside = (1 - checked(confidence)) / 2
        low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / self.samples, [outside, 1 - outside])
        return float(low), float(high)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test (1947) from the counts of samples that differ."""
    from scipy.special import bdtr

    differ = only_first + only_second
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), differ, 0.5))) if differ else 1.0


def robust_samples(records: pd.DataFrame) -> pd.Series:
    """Say by sample id which samples are classified correctly and not broken."""
    robust = rates.unbroken(records)
    return robust.set_axis(pd.Index(records["sample_id"]))


def compare(first: pd.DataFrame, second: pd.DataFrame) -> Paired:
    """Compare two runs on their common samples: of two models, or of two attacks on one."""
    return pair(robust_samples(first), robust_samples(second))


def pair(first: pd.Series, second: pd.Series) -> Paired:
    """Compare two outcomes, true or false by sample id, on their common samples."""
    common = first.index.intersection(second.index)
    if not len(common):
        raise BadRequest("The two runs share no sample: compare runs on the same data.")
    one, other = first.loc[common].to_numpy(bool), second.loc[common].to_numpy(bool)
    kinds = (one & other, one & ~other, ~one & other, ~one & ~other)
    return Paired(*(int(kind.sum()) for kind in kinds))
