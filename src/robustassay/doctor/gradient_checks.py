"""Checks that gradients exist and predict how the model changes."""

from typing import Final

from torch import Tensor

from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.evaluation.flags import MAX_LINEAR_ERROR, linearity
from robustassay.rng import Streams
from robustassay.threat.losses import logit_margin

GRADIENT_FREE_REMEDIES: Final = ("bpda", "smoothing", "square", "transfer")
"""Remedies that do not follow the model's own gradient."""


def unavailable_gradients(probes: ProbeSet) -> IndicatorResult:
    """Count the images with a zero gradient, at the image and at a random point of its ball."""
    away = probes.ball(probes.norm.eps).sample(Streams.of(SEED, probes.ids, probes.x0.device))
    here, there = (_zero_gradient(probes, x) for x in (probes.x0, away))
    zero_somewhere = here | there
    only_here = bool(here.any() and not there.any())
    return IndicatorResult(
        "unavailable gradients",
        float(zero_somewhere.float().mean()),
        0.0,
        f"the gradient is exactly zero at {int(here.sum())} of {len(probes)} images, and at {int(there.sum())} of the "
        "random points around them",
        ("restarts", *GRADIENT_FREE_REMEDIES) if only_here else GRADIENT_FREE_REMEDIES,
    )


def misleading_gradients(probes: ProbeSet) -> IndicatorResult:
    """Compare the change of the margin over a tiny step with the change that the gradient predicts."""
    gradient, _ = probes.target.gradient(probes.x0, logit_margin, probes.goal)
    ratio = linearity(probes.target, probes.x0, probes.goal, gradient)
    if not len(ratio):
        why = "not checked: the model is random, its gradient is declared, or it has none"
        return IndicatorResult("misleading gradients", 0.0, MAX_LINEAR_ERROR, why)
    wrong_way = float((ratio < -MAX_LINEAR_ERROR).float().mean()) > 0.5
    return IndicatorResult(
        "misleading gradients",
        float((ratio - 1).abs().median()),
        MAX_LINEAR_ERROR,
        f"a tiny step along the gradient changes the margin by {float(ratio.median()):.2f} times what it predicts",
        ("reversal", *GRADIENT_FREE_REMEDIES) if wrong_way else GRADIENT_FREE_REMEDIES,
    )


def _zero_gradient(probes: ProbeSet, x: Tensor) -> Tensor:
    gradient, _ = probes.target.gradient(x, logit_margin, probes.goal)
    return gradient.flatten(1).abs().amax(1) == 0
