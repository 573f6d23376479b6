"""The finding about smoothness, within each architecture."""

from typing import Final

import pandas as pd

from robustassay.analysis.compare import mcnemar
from robustassay.studies.analyses.analysis import ADVERSARIAL, NATURAL, group
from robustassay.studies.analyses.model_measurements import card_of
from robustassay.studies.measures.smoothness import OUTPUT
from robustassay.studies.page import Verdict, combined
from robustassay.studies.robustbench2021.answers import LEVEL, Outcome, unknown
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements

FEWEST: Final = 2
"""Architectures that a verdict needs: pairs of one architecture are one case of the claim."""


def smoothness(study: RobustBenchMeasurements) -> Outcome:
    """Compare models of one architecture by sign tests of their relative Lipschitz estimates per image."""
    if "smoothness" not in study.analyses:
        return unknown("not measured yet")
    models = study.analyses["smoothness"].table["model"].tolist()
    verdicts: list[Verdict] = []
    reasons, factors, sizes = [], [], []
    kinds: list[str] = []  # a natural model of each architecture
    for natural in (model for model in models if group(model) == NATURAL):
        for other in (model for model in models if group(model) == ADVERSARIAL and same_architecture(model, natural)):
            one, two = _relative(study, natural), _relative(study, other)
            larger, smaller = int((one > two).sum()), int((one < two).sum())
            chance = mcnemar(larger, smaller)
            sure: Verdict = "holds" if larger > smaller else "does not hold"
            verdicts.append(sure if chance < LEVEL else "cannot be said")
            factors.append(float((one / two).median()))
            sizes.append(len(one))
            kinds += [natural] * (not any(same_architecture(natural, kind) for kind in kinds))
            reasons.append(
                f"{natural} has a larger estimate than {other} at {larger} of {len(one)} images, by a factor of "
                f"{factors[-1]:.1f} at the median (sign test p = {chance:.2g})."
            )
    if not verdicts:
        return unknown("no two models of one architecture, natural and trained against attacks")
    few, many = min(sizes), max(sizes)
    text = (
        f"natural training: {min(factors):.1f} to {max(factors):.1f} times the local slope, {len(factors)} "
        f"pair{'s' * (len(factors) > 1)} of {len(kinds)} architecture{'s' * (len(kinds) > 1)}, "
        f"n = {few if few == many else f'{few} to {many}'} images"
    )
    if len(kinds) < FEWEST:
        because = f"one architecture, that of {kinds[0]}, is too few; sign tests over images"
        return Outcome("cannot be said", text, because, tuple(reasons))
    return Outcome(combined(verdicts), text, "sign tests over images, within each architecture", tuple(reasons))


def _relative(study: RobustBenchMeasurements, model: str) -> pd.Series:
    frame = study.measured.lipschitz(model)
    own = frame[frame["stage"] == OUTPUT].set_index("sample_id")
    return own["slope"] / own["size"].clip(lower=1e-12)


def same_architecture(one: str, two: str) -> bool:
    """Say whether two models of the zoo differ in their training only."""
    first, second = card_of(one), card_of(two)
    return first is not None and second is not None and first.architecture == second.architecture
