"""Sizes of margins: what attacks through gradient fixes scale logits by."""

import math
from collections.abc import Sequence
from typing import Final

import torch

from robustassay.doctor.gradient_fixes import FixedGradients, GradientFix, RescaleLogits
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.straight_through import UNSUITABLE
from robustassay.errors import ModelFailed

LINEAR_MARGIN: Final = 0.2
"""Median margin of scores under attack: probabilities are then almost linear in them."""


@torch.no_grad()
def typical_margin(probes: ProbeSet, fixes: Sequence[GradientFix]) -> float:
    """Return the median margin of the logits behind these fixes; NaN where the model cannot run with them."""
    fixed = FixedGradients(probes.target.module, fixes)
    try:
        logits = probes.target.with_module(fixed).call_differentiable(probes.x0)
    except (ModelFailed, *UNSUITABLE):
        return math.nan
    return float(probes.goal.margin(logits).abs().median())


def inner_scores(probes: ProbeSet, output: GradientFix) -> list[GradientFix]:
    """Take inner scores as logits, at a scale at which a loss on probabilities is linear.

    So an attack does not end where these scores rank another class first: other scores may still decide.
    """
    size = typical_margin(probes, [output])
    return [output, RescaleLogits(LINEAR_MARGIN / size)] if 0 < size < math.inf else [output]
