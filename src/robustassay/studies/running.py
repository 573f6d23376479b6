"""Runs the tasks of a study, and keeps where their results come from."""

from typing import Final

import torch

from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.progress import Progress
from robustassay.studies.provenance import Measured, devices
from robustassay.studies.scope import Scope
from robustassay.studies.study import M, Plan

CPU: Final = "CPU"
"""The device of what no GPU measured."""


def compute(plan: Plan[M], scope: Scope, progress: Progress) -> M:
    """Compute what is missing, and return all measurements."""
    if plan.unfinished():
        Measured.here(device_name(scope.device)).keep(scope.out)
    return plan.run(progress)


def measured_on_cpu(scope: Scope) -> bool:
    """Say whether a study has the settings of a CPU.

    A folder with results of a GPU keeps the settings of a GPU, so that any machine can read and complete it.
    """
    return choose_device(scope.device).type == "cpu" and devices(scope.out) <= {CPU}


def device_name(device: str | None) -> str:
    """Name the device as its maker does."""
    chosen = choose_device(device)
    return torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else CPU
