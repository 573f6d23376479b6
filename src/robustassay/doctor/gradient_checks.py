"""Whether there are gradients, and whether they tell the truth."""

from typing import Final

from torch import Tensor

from robustassay.doctor.indicator import Finding
from robustassay.doctor.probe_set import SEED, Patient
from robustassay.evaluation.flags import MISLED, kept_promises
from robustassay.rng import Streams
from robustassay.threat.losses import logit_margin

AROUND: Final = ("bpda", "smoothing", "square", "transfer")
"""What helps whoever has no gradient worth following."""


def unavailable(patient: Patient) -> Finding:
    """Count the images with no gradient at all, where they are and at a random point of their ball."""
    away = patient.ball(patient.norm.eps).sample(Streams.of(SEED, patient.ids, patient.x0.device))
    here, there = (_stuck(patient, x) for x in (patient.x0, away))
    stuck = here | there
    only_here = bool(here.any() and not there.any())
    return Finding(
        "unavailable gradients",
        float(stuck.float().mean()),
        0.0,
        f"the gradient is exactly zero at {int(here.sum())} of {len(patient)} images, and at {int(there.sum())} of the "
        "points beside them",
        ("restarts", *AROUND) if only_here else AROUND,
    )


def misleading(patient: Patient) -> Finding:
    """Compare how a tiny step changes the answer with what the gradient foretold."""
    gradient, _ = patient.network.gradient(patient.x0, logit_margin, patient.goal)
    ratio = kept_promises(patient.network, patient.x0, patient.goal, gradient)
    if not len(ratio):
        why = "not asked: draws differ, the gradient is declared, or there is none"
        return Finding("misleading gradients", 0.0, MISLED, why)
    wrong_way = float((ratio < -MISLED).float().mean()) > 0.5
    return Finding(
        "misleading gradients",
        float((ratio - 1).abs().median()),
        MISLED,
        f"a tiny step along the gradient changes the margin by {float(ratio.median()):.2f} times what it foretells",
        ("reversal", *AROUND) if wrong_way else AROUND,
    )


def _stuck(patient: Patient, x: Tensor) -> Tensor:
    gradient, _ = patient.network.gradient(x, logit_margin, patient.goal)
    return gradient.flatten(1).abs().amax(1) == 0
