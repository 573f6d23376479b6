"""Checks that gradients exist and predict how the model changes."""

from typing import Final

import torch

from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.evaluation.finite_differences import DirectionalErrors, directional_errors
from robustassay.evaluation.flags import MAX_DIRECTIONAL_ERROR, MAX_FLAT
from robustassay.rng import Streams

GRADIENT_FREE_REMEDIES: Final = ("bpda", "smoothing", "square", "transfer")
"""Remedies that do not follow the model's own gradient."""

MAX_WRONG: Final = 0.2
"""Fraction of images on which the gradient may be wrong, or zero although the model changes."""

KIND: Final = "gradients"


def compare_gradients(probes: ProbeSet) -> tuple[DirectionalErrors, DirectionalErrors]:
    """Compare gradients with the model's changes, at the images and at a random point of each ball."""
    away = probes.ball(probes.norm.eps).sample(Streams.of(SEED, probes.ids, probes.x0.device))
    here, there = (directional_errors(probes.target, probes.ids, x, probes.goal) for x in (probes.x0, away))
    return here, there


def unavailable_gradients(errors: tuple[DirectionalErrors, DirectionalErrors]) -> IndicatorResult:
    """Count the images with a gradient of zero, at the image or at a random point of its ball.

    A gradient of zero in a region where the model is constant, as far as tried, counts only if there are many.
    """
    here, there = errors
    total = len(here.zero)
    moving = (here.zero & here.examined) | (there.zero & there.examined)
    either = here.zero | there.zero
    many = float(either.float().mean()) > MAX_FLAT
    only_here = bool(here.zero.any() and not there.zero.any())
    return IndicatorResult(
        "unavailable gradients",
        float((either if many else moving).float().mean()),
        MAX_WRONG,
        f"the gradient is exactly zero at {int(here.zero.sum())} of {total} images, and at {int(there.zero.sum())} of "
        f"the random points around them; around {int(moving.sum())} of these images the model changes all the same",
        ("restarts", *GRADIENT_FREE_REMEDIES) if only_here else GRADIENT_FREE_REMEDIES,
        weak_limit=0.0,
        kind=KIND,
    )


def misleading_gradients(errors: tuple[DirectionalErrors, DirectionalErrors]) -> IndicatorResult:
    """Count the images whose margin or logits change otherwise than the gradient predicts, along random directions."""
    here, there = errors
    examined = here.examined | there.examined
    if not examined.any():
        return IndicatorResult.not_examined("misleading gradients", MAX_WRONG, here.reason or there.reason)
    error = torch.stack([one.error.where(~one.zero, torch.nan).nan_to_num(0.0) for one in errors]).amax(0)
    wrong = error > MAX_DIRECTIONAL_ERROR
    slope = torch.stack([here.slope, there.slope]).nanmedian()
    remedies = ("reversal", *GRADIENT_FREE_REMEDIES) if slope < -MAX_DIRECTIONAL_ERROR else GRADIENT_FREE_REMEDIES
    return IndicatorResult(
        "misleading gradients",
        float(wrong.float().mean()),
        MAX_WRONG,
        f"over tiny random steps, the gradient's prediction is wrong by more than {MAX_DIRECTIONAL_ERROR:.0%} at "
        f"{int(wrong.sum())} of {len(wrong)} images (median error {float(error[examined].median()):.0%})",
        remedies,
        weak_limit=0.05,
        kind=KIND,
    )
