"""Analyses of a set of models (Croce et al. 2021, section 4).

A module here has `requires`, the measurements it needs, and `make`, from finished measurements to an `Analysis`. A row
in `ANALYSES` makes one known to the command line and the studies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay.studies.analyses import (
    calibration,
    fairness,
    ood,
    privacy,
    robust_shift,
    shift,
    smoothness,
    time,
    transfer,
)
from robustassay.studies.analyses.analysis import Analysis
from robustassay.studies.analyses.model_measurements import ModelMeasurements
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key

__all__ = ["ANALYSES", "Analysis", "AnalysisKind", "make", "requires"]


@final
@dataclass(frozen=True)
class AnalysisKind:
    """One kind of analysis."""

    about: str
    requires: Callable[[AnalysisSetup], list[Key]]
    make: Callable[[ModelMeasurements], Analysis]


ANALYSES: Final = {
    "shift": AnalysisKind("accuracy on other data", shift.requires, shift.make),
    "robust-shift": AnalysisKind("robust accuracy on other data", robust_shift.requires, robust_shift.make),
    "calibration": AnalysisKind("expected calibration error and temperatures", calibration.requires, calibration.make),
    "ood": AnalysisKind("out-of-distribution detection, as AUROC", ood.requires, ood.make),
    "fairness": AnalysisKind("accuracy of each class", fairness.requires, fairness.make),
    "privacy": AnalysisKind("membership inference by confidence", privacy.requires, privacy.make),
    "smoothness": AnalysisKind("local Lipschitz estimates, stage by stage", smoothness.requires, smoothness.make),
    "transfer": AnalysisKind("transfer of adversarial examples between models", transfer.requires, transfer.make),
    "time": AnalysisKind("robustness by year and venue of the method", time.requires, time.make),
}


def requires(setup: AnalysisSetup, kinds: Sequence[str]) -> list[Key]:
    """Return the measurements that some analyses need."""
    return [measurement for kind in kinds for measurement in ANALYSES[kind].requires(setup)]


def make(measured: ModelMeasurements, kinds: Sequence[str]) -> list[Analysis]:
    """Make some analyses."""
    return [ANALYSES[kind].make(measured) for kind in kinds]
