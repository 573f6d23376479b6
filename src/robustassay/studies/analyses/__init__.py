"""Analyses of a set of models (Croce et al. 2021, section 4): what each needs, and what it makes of it.

A module here has `needs`, the pieces of work it is made of, and `make`, from the finished pieces to an `Analysis`.
A row in `KINDS` is all it takes to make one known to the command line and the studies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay.studies.analyses import calibration, fairness, ood, privacy, shift, smoothness, time
from robustassay.studies.analyses.analysis import Analysis
from robustassay.studies.workbench import Bench, Need, Workbench

__all__ = ["KINDS", "Analysis", "Kind", "make", "needs"]


@final
@dataclass(frozen=True)
class Kind:
    """One analysis."""

    about: str
    needs: Callable[[Workbench], list[Need]]
    make: Callable[[Bench], Analysis]


KINDS: Final = {
    "shift": Kind("accuracy on other data", shift.needs, shift.make),
    "calibration": Kind("expected calibration error and temperatures", calibration.needs, calibration.make),
    "ood": Kind("telling inputs of another kind, as AUROC", ood.needs, ood.make),
    "fairness": Kind("accuracy of each class", fairness.needs, fairness.make),
    "privacy": Kind("telling training images by confidence", privacy.needs, privacy.make),
    "smoothness": Kind("local Lipschitz estimates, layer by layer", smoothness.needs, smoothness.make),
    "time": Kind("robustness by year and venue of the method", time.needs, time.make),
}


def needs(bench: Workbench, kinds: Sequence[str]) -> list[Need]:
    """Return all that some analyses are made of, model by model, each once."""
    wanted = dict.fromkeys(need for kind in kinds for need in KINDS[kind].needs(bench))
    return sorted(wanted, key=lambda need: bench.models.index(need.model))


def make(bench: Bench, kinds: Sequence[str]) -> list[Analysis]:
    """Make some analyses."""
    return [KINDS[kind].make(bench) for kind in kinds]
