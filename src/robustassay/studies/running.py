"""Runs the tasks of a study, and keeps where their results come from."""

import torch

from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.progress import Progress
from robustassay.studies.provenance import Measured
from robustassay.studies.scope import Scope
from robustassay.studies.study import M, Plan


def compute(plan: Plan[M], scope: Scope, progress: Progress) -> M:
    """Compute what is missing, and return all measurements."""
    if plan.unfinished():
        Measured.here(device_name(scope.device)).keep(scope.out)
    return plan.run(progress)


def device_name(device: str | None) -> str:
    """Name the device as its maker does."""
    chosen = choose_device(device)
    return torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else "CPU"
