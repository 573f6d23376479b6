"""Checks that a model's outputs are stable and that losses on them have a gradient."""

from collections.abc import Mapping
from itertools import combinations
from typing import Final

import torch
import torch.nn.functional as F

from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.evaluation.flags import UNDERFLOW, UNREACHABLE
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
"""Limit of |log10| of a margin; above it (outside 1/40 to 40) losses that depend on the scale work badly."""

FAINT: Final = 0.01
"""Margins below this one belong to no trained network at its own scale."""

MIN_RESOLVED: Final = 100.0
"""Smallest margin in units of the resolution of the logits; below it, rounding hides what an attack gains."""

MAX_UNUSUAL: Final = 0.5
"""Fraction of images on which cross-entropy may have no gradient; a margin of an unusual size counts as half of one.

So the scale of logits alone is a weak sign: attacks whose loss does not depend on it work all the same.
"""

DRAWS: Final = 4

MIN_CLASSES: Final = 4
"""Fewer classes leave too few losing logits to compare with each other."""

RESPONSES: Final = 6
"""Random points around each image at which logits are compared."""

SILENT: Final = 0.01
"""Change of a losing logit against the others, as a fraction of the change of the margin, that counts as none."""

MAX_SILENT_CLASSES: Final = 0.5
MAX_SILENT_IMAGES: Final = 0.2
"""Fraction of images at which more than that fraction of the losing logits may be silent."""

ROUNDING: Final = 32.0
"""Smallest change of a margin that is compared, in units of the resolution of the model's floating type."""

KIND: Final = "outputs"


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
        weak_limit=0.0,
        kind=KIND,
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
        kind=KIND,
    )


def vanishing_loss(probes: ProbeSet, flags: Mapping[str, str]) -> IndicatorResult:
    """Check that a loss on these outputs has a gradient: margins of a usual size, no squashed outputs."""
    size = probes.clean.double().abs()
    leading = probes.target.mean_logits(probes.x0).topk(2, dim=1).values
    resolution = torch.finfo(torch.float32).eps * leading.abs().amax(1).double()
    vanishing = (size > UNDERFLOW) | (size < FAINT) | (size < MIN_RESOLVED * resolution)
    unusual = vanishing | (size.log10().abs() > MAX_DECADES)
    squashed = [flags[name] for name in ("softmax", "squashed") if name in flags]
    counted = (
        f"{int(unusual.sum())} of {len(probes)} margins lie outside 1/40 to 40, {int(vanishing.sum())} of them outside "
        f"{FAINT:g} to {UNDERFLOW:g}, or near the rounding of float32"
    )
    return IndicatorResult(
        "vanishing loss",
        1.0 if squashed else float((vanishing.float() + unusual.float()).mean() / 2),
        MAX_UNUSUAL,
        squashed[0].partition(":")[0] if squashed else f"{counted} (median {float(size.median()):.3g})",
        ("logits", "loss"),
        weak_limit=MAX_UNUSUAL / 2,
        kind=KIND,
    )


def unresponsive_logits(probes: ProbeSet) -> IndicatorResult:
    """Count, per image, the classes besides the first two whose logits do not follow changes of the image.

    The points compared are random ones of twice the ball; a class follows if its gap to the other classes changes.
    """
    name, classes = "unresponsive logits", probes.target.classes
    if classes < MIN_CLASSES:
        return IndicatorResult.not_examined(name, MAX_SILENT_IMAGES, f"the model has {classes} classes only")
    rng = Streams.of(SEED, probes.ids, probes.x0.device)
    around = [probes.ball(2 * probes.norm.eps).sample(rng) for _ in range(RESPONSES)]
    logits = torch.stack([probes.target.mean_logits(x) for x in (probes.x0, *around)]).double()
    top = logits[0].argmax(1)
    winner = F.one_hot(top, classes).bool()
    own = logits[:, winner]
    others = logits[:, ~winner].view(len(logits), len(probes), classes - 1)
    moved = (others - others.median(2, keepdim=True).values).std(0)
    scale = (own - others.amax(2)).std(0)
    rounding = ROUNDING * torch.finfo(probes.target.dtype).eps * own.abs().amax(0)
    examined = scale > rounding
    silent = (moved <= SILENT * scale[:, None]).double().mean(1) > MAX_SILENT_CLASSES
    if not examined.any():
        return IndicatorResult.not_examined(name, MAX_SILENT_IMAGES, "random points change no margin")
    return IndicatorResult(
        name,
        float(silent[examined].float().mean()),
        MAX_SILENT_IMAGES,
        f"at {int((silent & examined).sum())} of {len(probes)} images most logits besides the highest do not follow "
        "changes of the image",
        ("logits", "bpda", "square", "transfer"),
        weak_limit=0.0,
        kind=KIND,
    )


def unreachable_class(flags: Mapping[str, str]) -> IndicatorResult:
    """Check whether a class comes second almost everywhere and wins nowhere."""
    return IndicatorResult(
        "unreachable class",
        float(UNREACHABLE in flags),
        0.0,
        flags.get(UNREACHABLE, "no class comes second on most images and cannot be reached").partition(",")[0],
        ("targets", "square"),
        kind=KIND,
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
