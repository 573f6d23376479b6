"""Rates of sets of examples, and differences between sets on the same images.

Differences have a percentile bootstrap over images: an image's outcomes on several models are not independent, so they
are resampled together.
"""

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis import transfer
from robustassay.analysis.rates import Rate
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.page import Verdict

RESAMPLES: Final = 10_000
FEWEST: Final = 10
"""Images below which a bootstrap interval is not reliable."""

Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Difference:
    """A mean difference with its bootstrap interval over images."""

    value: float
    low: float
    high: float
    images: int

    @property
    def verdict(self) -> Verdict:
        """Whether the first of two sets is better."""
        if self.images < FEWEST:
            return "cannot be said"
        return "holds" if self.low > 0 else "does not hold" if self.high < 0 else "cannot be said"

    def within(self, most: float) -> Verdict:
        """Whether two sets differ by less than this."""
        if self.images < FEWEST:
            return "cannot be said"
        if -most < self.low and self.high < most:
            return "holds"
        return "does not hold" if self.low > most or self.high < -most else "cannot be said"

    def not_worse(self, most: float) -> Verdict:
        """Whether the first of two sets is at most this much behind."""
        if self.images < FEWEST:
            return "cannot be said"
        return "holds" if self.low > -most else "does not hold" if self.high < -most else "cannot be said"

    @property
    def because(self) -> str:
        """Say in a few words what the verdict rests on."""
        if self.images < FEWEST:
            return f"{self.images} images are too few"
        side = "is above 0" if self.low > 0 else "is below 0" if self.high < 0 else "includes 0"
        return f"the interval of the difference {side}"

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} points (95 % interval {100 * self.low:+.1f} to {100 * self.high:+.1f})"


def difference(first: Numbers, second: Numbers, seed: int = 0, comparisons: int = 1) -> Difference:
    """Compare two tables of outcomes, images x models; images are resampled.

    The interval is widened where it is one of several comparisons (Bonferroni). Where no two images differ, resampling
    says nothing: the interval is then as wide as that of a rate without a single success, one trial per image.
    """
    each = (first - second).mean(1)
    if np.ptp(each) == 0:
        value, unseen = float(each[0]), Rate(0, len(each)).interval()[1]
        return Difference(value, value - unseen, value + unseen, len(each))
    drawn = np.random.default_rng(seed).integers(len(each), size=(RESAMPLES, len(each)))
    tail = 0.025 / comparisons
    low, high = np.quantile(each[drawn].mean(1), [tail, 1 - tail])
    return Difference(float(each.mean()), float(low), float(high), len(each))


def held_out(outcomes: pd.DataFrame, names: list[str], targeted: bool) -> Numbers:
    """Return the attack's success on the model that each ensemble left out, images x models."""
    return np.stack([success(outcomes, f"-{name}", name, targeted) for name in names], 1)


def best_single(outcomes: pd.DataFrame, names: list[str], targeted: bool) -> tuple[Numbers, list[str]]:
    """Return the same for the best single source per model, chosen with hindsight, and its name."""
    columns, sources = [], []
    for name in names:
        others = {source: success(outcomes, source, name, targeted) for source in names if source != name}
        best = max(others, key=lambda source: others[source].mean())
        columns.append(others[best])
        sources.append(best)
    return np.stack(columns, 1), sources


def success(outcomes: pd.DataFrame, source: str, target: str, targeted: bool) -> Numbers:
    """Return per image whether the examples of a source succeed on a target."""
    rows = outcomes[(outcomes["source"] == source) & (outcomes["target"] == target)].sort_values("sample")
    return transfer.holds(rows, "matching" if targeted else "error").to_numpy(float)


def between_models(outcomes: pd.DataFrame, names: list[str], targeted: bool) -> Numbers:
    """Return the success of every single source on every other model, images x pairs."""
    pairs = [(one, two) for one in names for two in names if one != two]
    return np.stack([success(outcomes, *pair, targeted) for pair in pairs], 1)


def pooled(experiment: LiuExperiment, example_set: ExampleSet, own: bool = False) -> Rate:
    """Count the successes of a set of single sources on other models, or on the source itself."""
    outcomes = experiment.outcomes(example_set)
    mine = outcomes["source"] == outcomes["target"]
    rows = outcomes[mine if own else ~mine]
    held = transfer.holds(rows, "matching" if example_set.targeted else "error")
    return Rate(int(held.sum()), len(held))


def mean_interval(values: Numbers, seed: int = 0) -> Difference:
    """Return the mean of a table, images x models, with its bootstrap interval over images."""
    found = difference(values, np.zeros_like(values), seed)
    return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))


def percent(found: Difference) -> str:
    """Write a mean rate with its interval."""
    return f"{found.value:.1%} ({found.low:.1%} to {found.high:.1%}, n = {found.images})"


def format_rate(rate: Rate) -> str:
    """Write a rate with its interval."""
    low, high = rate.interval()
    return f"{rate.value:.1%} ({low:.1%} to {high:.1%}, n = {rate.total:,})"
