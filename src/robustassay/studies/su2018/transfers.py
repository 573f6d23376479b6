"""How often examples transfer, per image: what the findings on transfer compare."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
import numpy.typing as npt

from robustassay.analysis.transfer import Among, Measure, TransferMatrix, holds, matrix
from robustassay.studies.page import Verdict
from robustassay.studies.su2018.measurements import SuMeasurements, bootstrap
from robustassay.studies.su2018.settings import GoalName

Numbers = npt.NDArray[np.float64]
TOP: Final = 5
"""The paper matches targets within the top 5; of ten classes half would be among these, so there it is the top 1."""
FEWEST: Final = 10
"""Images that a verdict on rates needs."""


def transfer_matrix(
    measured: SuMeasurements, goal: GoalName, attack: str, among: Among = "both correct"
) -> TransferMatrix:
    """Return how often examples transfer from one model (rows) to another."""
    short = {model.name: model.label for model in measured.models}
    outcomes = measured.outcomes[goal, attack].replace({"source": short, "target": short})
    measure: Measure = "error" if goal == "untargeted" else "matching"
    return matrix(outcomes, measure, TOP if goal != "untargeted" and measured.settings.photographs else 1, among)


@final
@dataclass(frozen=True, eq=False)
class Transferred:
    """Whether each example transferred, per pair of models; NaN where either is wrong on the clean image."""

    pairs: dict[tuple[str, str], Numbers]
    family: dict[str, str]

    @classmethod
    def of(cls, measured: SuMeasurements, goal: GoalName, attack: str) -> "Transferred":
        """Read the outcomes of one attack."""
        found = measured.outcomes[goal, attack]
        right = found["source_ok"].astype(bool) & found["target_ok"]
        top = TOP if measured.settings.photographs else 1
        held = holds(found, "error") if goal == "untargeted" else holds(found, "matching", top)
        found = found.assign(held=held.astype(float).where(right))
        pairs = {
            (str(source), str(target)): part.sort_values("sample")["held"].to_numpy(float)
            for (source, target), part in found.groupby(["source", "target"])
        }
        return cls(pairs, {model.name: model.family for model in measured.models})

    @property
    def sources(self) -> frozenset[str]:
        """The models that examples were crafted on."""
        return frozenset(source for source, _ in self.pairs)

    def where(self, kept: Mapping[str, Numbers]) -> "Transferred":
        """Return the outcomes of the examples that are kept (1) of each source; others are NaN."""
        pairs = {
            (source, target): np.where(kept[source][: len(held)] == 1, held[: len(kept[source])], np.nan)
            for (source, target), held in self.pairs.items()
            if source in kept
        }
        return replace(self, pairs=pairs)

    def mean(
        self,
        sources: Collection[str] | None = None,
        same_family: bool | None = None,
        targets: Collection[str] | None = None,
    ) -> Numbers:
        """Return, per image, the mean over other models, or over those inside or outside of each source's family."""
        chosen = [
            held
            for (source, target), held in self.pairs.items()
            if source != target
            and (sources is None or source in sources)
            and (targets is None or target in targets)
            and (same_family is None or (self.family[source] == self.family[target]) == same_family)
        ]
        if not chosen:
            return np.full(1, np.nan)
        return _mean_of(chosen)

    def mean_by_target(self, sources: Collection[str], targets: Collection[str]) -> Numbers:
        """Return, per image, the mean over targets of the mean over the sources of other families."""
        found = []
        for target in targets:
            shown = [s for s in sources if (s, target) in self.pairs and self.family[s] != self.family[target]]
            if shown:
                found.append(_mean_of([self.pairs[source, target] for source in shown]))
        return _mean_of(found) if found else np.full(1, np.nan)


def _mean_of(chosen: Sequence[Numbers]) -> Numbers:
    """Return the mean per image over what is known."""
    stack = np.stack(chosen)
    known = np.isfinite(stack).sum(0)
    return np.where(known > 0, np.nansum(stack, 0) / np.maximum(known, 1), np.nan)


@final
@dataclass(frozen=True)
class Difference:
    """The mean of one rate per image minus that of another, over the images that both know."""

    first: float
    second: float
    apart: float
    low: float
    high: float
    images: int

    @classmethod
    def of(cls, first: Numbers, second: Numbers, comparisons: int = 1) -> "Difference | None":
        """Compare; attacks may have met different numbers of images, always the first of the dataset.

        The intervals of several comparisons hold together, at 95 %.
        """
        n = min(len(first), len(second))
        known = np.isfinite(first[:n] - second[:n])
        if not known.any():
            return None
        one, two = first[:n][known], second[:n][known]
        low, high = bootstrap(one - two, 1 - 0.05 / comparisons)
        return cls(float(one.mean()), float(two.mean()), float((one - two).mean()), low, high, int(known.sum()))

    @property
    def verdict(self) -> Verdict:
        """Whether the first is larger; a bootstrap of fewer images is too sure of itself."""
        if self.images < FEWEST:
            return "cannot be said"
        return "holds" if self.low > 0 else "does not hold" if self.high < 0 else "cannot be said"

    @classmethod
    def reason(cls, verdict: Verdict, found: "Sequence[Difference | None]") -> str:
        """Say in a few words what a verdict on several differences rests on."""
        if verdict == "cannot be said" and any(one is not None and one.images < FEWEST for one in found):
            return f"fewer than {FEWEST} images in some comparison"
        return "the intervals of all differences, over images and together at 95 %, against zero"

    @property
    def text(self) -> str:
        """The two rates and their difference."""
        return (
            f"{self.first:.1%} against {self.second:.1%}, {100 * self.apart:+.1f} points "
            f"({100 * self.low:+.1f} to {100 * self.high:+.1f}, {self.images} images)"
        )
