"""Whether there are gradients, and whether they tell the truth."""

from typing import Final

from torch import Tensor

from assay.doctor.finding import Finding
from assay.doctor.patient import SEED, Patient
from assay.evaluation.flags import MISLED, NUDGE
from assay.rng import Streams
from assay.threat.losses import logit_margin

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
    if patient.network.random or patient.network.is_adaptive:
        return Finding("misleading gradients", 0.0, MISLED, "not asked: draws differ, or the gradient is declared")
    gradient, _ = patient.network.gradient(patient.x0, logit_margin, patient.goal)
    step = NUDGE * gradient.sign()
    foretold = 2 * (gradient * step).flatten(1).sum(1)
    seen = _margin(patient, patient.x0 - step) - _margin(patient, patient.x0 + step)
    ratio = (seen / foretold)[foretold > 0]
    if not len(ratio):
        return Finding("misleading gradients", 0.0, MISLED, "not asked: there are none")
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


def _margin(patient: Patient, x: Tensor) -> Tensor:
    return patient.goal.margin(patient.network.logits(x))
