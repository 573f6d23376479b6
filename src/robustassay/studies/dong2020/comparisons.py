"""Paired comparisons of rows of the benchmark, and how they are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import pandas as pd

from robustassay.analysis.compare import Paired, mcnemar
from robustassay.analysis.curves import Curve
from robustassay.analysis.ranks import holm
from robustassay.analysis.rates import Rate
from robustassay.studies.page import Verdict

LEVEL: Final = 0.05


@final
@dataclass(frozen=True)
class Compared:
    """Two sides on the same samples: by which difference, with which p-value, and the sentence that says so."""

    where: str
    difference: float
    chance: float  # Holm-corrected within its finding
    sentence: str

    @property
    def better(self) -> bool:
        """Whether the first side is significantly better."""
        return self.chance < LEVEL and self.difference > 0

    @property
    def worse(self) -> bool:
        """Whether the first side is significantly worse."""
        return self.chance < LEVEL and self.difference < 0


def compare(tests: Sequence[tuple[str, str, str, Paired]]) -> list[Compared]:
    """Correct the p-values of several paired tests (where, first, second, counts), and write each."""
    chances = holm([paired.chance for *_, paired in tests])
    return [
        Compared(where, paired.difference, chance, f"{where}: {versus(one, two, paired, chance)}.")
        for (where, one, two, paired), chance in zip(tests, chances, strict=True)
    ]


def compare_distances(tests: Sequence[tuple[str, str, str, Curve, Curve]]) -> list[Compared]:
    """Compare the distances that break each sample by sign tests; clean errors have distance 0."""
    counts = [larger_distances(one, two) for *_, one, two in tests]
    chances = holm([mcnemar(more, less) for more, less in counts])
    return [
        Compared(
            where,
            float(more - less),
            chance,
            f"{where}: {first} needs a larger perturbation than {second} on {more} samples and a smaller one on {less} "
            f"(p = {chance:.2g}); median {one.median:.3g} against {two.median:.3g}.",
        )
        for (where, first, second, one, two), (more, less), chance in zip(tests, counts, chances, strict=True)
    ]


def larger_distances(one: Curve, two: Curve) -> tuple[int, int]:
    """Count the samples with the larger distance on one side, and on the other."""
    common = one.breaks_at.index.intersection(two.breaks_at.index)
    first, second = (curve.breaks_at.loc[common].where(curve.clean_ok.loc[common], 0.0) for curve in (one, two))
    return int((first > second).sum()), int((first < second).sum())


def every(found: Sequence[Compared]) -> Verdict:
    """Return the verdict on a claim that the first side is better in every comparison."""
    if found and all(one.better for one in found):
        return "holds"
    return "does not hold" if any(one.worse for one in found) else "cannot be said"


def most(found: Sequence[Compared]) -> Verdict:
    """Return the verdict on a claim that the first side is better in most cases: in more than half of them."""
    better, worse = (sum(flags) for flags in ([one.better for one in found], [one.worse for one in found]))
    if better > len(found) / 2:
        return "holds"
    return "does not hold" if worse > len(found) / 2 else "cannot be said"


def versus(one: str, two: str, paired: Paired, chance: float) -> str:
    """Write both rates, their difference with its interval, the p-value and n."""
    low, high = paired.interval()
    first, second = ((paired.both + alone) / paired.samples for alone in (paired.only_first, paired.only_second))
    return (
        f"{one} {first:.1%}, {two} {second:.1%}: {points(paired.difference)} points "
        f"({points(low)} to {points(high)}; p = {chance:.2g}, n = {paired.samples})"
    )


def rate_of(robust: pd.Series) -> str:
    """Write the share of robust samples, with its interval."""
    rate = Rate(int(robust.sum()), len(robust))
    low, high = rate.interval()
    return f"{rate.value:.1%} ({low:.1%} to {high:.1%})"


def points(difference: float) -> str:
    """Write a difference in percentage points, with its sign."""
    return f"{round(100 * difference, 1) + 0.0:+.1f}".replace("-", "−")  # without a negative zero


def parts_of(parts: dict[str, Verdict]) -> str:
    """Say which part of a claim has which verdict."""
    return "; ".join(f"{name}: {verdict}" for name, verdict in parts.items())
