"""Checks that a model's outputs are stable and that losses on them have a gradient."""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Final

import torch
import torch.nn.functional as F

from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.rng import Streams
from robustassay.threat.losses import logit_margin

NOISE_SIZE: Final = 1e-3
"""Size of the random noise, per value, that must not change a margin much."""

LARGE_CHANGE: Final = 0.5
"""Change of a margin under this noise, as a fraction of a typical margin, that counts as unstable."""

MAX_UNSTABLE: Final = 0.1
"""Fraction of images whose margins may be unstable."""

MAX_GRADIENT_DISAGREEMENT: Final = 0.6
"""One minus the cosine between the gradients of two draws of a random model."""

MAX_DECADES: Final = 1.6
"""Limit of |log10| of the median margin; above it (outside 1/40 to 40) some loss has no gradient in float32."""

NO_GRADIENT_DECADES: Final = 16.0
"""A value above every limit, for squashed outputs and for a median margin of zero."""

DRAWS: Final = 4


def unstable_predictions(probes: ProbeSet) -> IndicatorResult:
    """Add small noise to every image and compare margins; of a random model, compare gradients of several draws."""
    if probes.target.random:
        return _unstable_gradients(probes)
    noise = Streams.of(SEED, probes.ids, probes.x0.device).rademacher(*probes.x0.shape[1:])
    noisy = (probes.x0 + NOISE_SIZE * noise).clamp(0, 1)
    change = (probes.goal.margin(probes.target.logits(noisy)) - probes.clean).abs()
    changed = change > LARGE_CHANGE * probes.clean.abs().clamp(min=float(probes.clean.abs().median()))
    return IndicatorResult(
        "unstable predictions",
        float(changed.float().mean()),
        MAX_UNSTABLE,
        f"a change of {NOISE_SIZE:g} in each value moves the margin of {int(changed.sum())} of {len(probes)} images by "
        "half of it or more",
        ("restarts", "bpda", "smoothing", "square", "transfer"),
    )


def _unstable_gradients(probes: ProbeSet) -> IndicatorResult:
    """Compare the gradients of single draws."""
    once = probes.target.with_draws(1)
    drawn = [once.gradient(probes.x0, logit_margin, probes.goal)[0].flatten(1) for _ in range(DRAWS)]
    alike = torch.stack([F.cosine_similarity(one, other) for one, other in combinations(drawn, 2)]).mean(0)
    typical = float(alike.median())
    return IndicatorResult(
        "unstable predictions",
        1 - typical,
        MAX_GRADIENT_DISAGREEMENT,
        f"the model draws random numbers, and the gradients of two draws have a cosine of {typical:.2f}",
        ("eot", "bpda", "square", "transfer"),
        note="it draws random numbers, so gradients are averaged over draws (EOT)",
    )


def vanishing_loss(probes: ProbeSet, flags: Mapping[str, str]) -> IndicatorResult:
    """Check that a loss on these outputs has a gradient: margins of a usual size, no squashed outputs."""
    typical = float(probes.clean.abs().median())
    decades = abs(math.log10(typical)) if typical > 0 else NO_GRADIENT_DECADES
    squashed = [flags[name] for name in ("softmax", "squashed") if name in flags]
    return IndicatorResult(
        "vanishing loss",
        NO_GRADIENT_DECADES if squashed else decades,
        MAX_DECADES,
        squashed[0].partition(":")[0] if squashed else f"the median margin is {typical:.3g}",
        ("logits", "loss"),
    )


def optimises_at_test_time(flags: Mapping[str, str]) -> IndicatorResult:
    """Check whether the model runs an optimisation in its forward pass."""
    return IndicatorResult(
        "test-time optimisation",
        float("dynamic" in flags),
        0.0,
        flags.get("dynamic", "a forward pass computes no gradient of its own").partition(",")[0].rstrip("."),
        ("bpda", "square", "transfer"),
    )
