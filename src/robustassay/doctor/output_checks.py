"""Whether a model's answers can be trusted: that they hold still, and that a loss can be made of them."""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Final

import torch
import torch.nn.functional as F

from robustassay.doctor.indicator import Finding
from robustassay.doctor.probe_set import SEED, Patient
from robustassay.rng import Streams
from robustassay.threat.losses import logit_margin

JOLT: Final = 1e-3
"""A change of every value, up or down at random, that no eye and no honest model takes notice of."""

STARTLED: Final = 0.5
"""A margin that changes by more than this part of a typical one for so little does not hold still."""

UNSTABLE: Final = 0.1
"""Part of the images whose margins may do so."""

FICKLE: Final = 0.6
"""How far the gradients of two draws of a random model may point apart, as one minus their cosine."""

DECADES: Final = 1.6
"""Powers of ten between a typical margin and one: within 1/40 to 40 every loss has a slope that float32 holds."""

HOPELESS: Final = 16.0
"""What squashed outputs count as: all the digits that even float64 has."""

DRAWS: Final = 4


def unstable(patient: Patient) -> Finding:
    """Jolt every image a little and see whether the model still says the same; ask a random one again instead."""
    if patient.network.random:
        return _fickle(patient)
    noise = Streams.of(SEED, patient.ids, patient.x0.device).rademacher(*patient.x0.shape[1:])
    jolted = (patient.x0 + JOLT * noise).clamp(0, 1)
    change = (patient.goal.margin(patient.network.logits(jolted)) - patient.clean).abs()
    startled = change > STARTLED * patient.clean.abs().clamp(min=float(patient.clean.abs().median()))
    return Finding(
        "unstable predictions",
        float(startled.float().mean()),
        UNSTABLE,
        f"a change of {JOLT:g} in each value moves the margin of {int(startled.sum())} of {len(patient)} images by "
        "half of it or more",
        ("restarts", "bpda", "smoothing", "square", "transfer"),
    )


def _fickle(patient: Patient) -> Finding:
    """Compare the gradients of single draws: where they disagree, one of them leads nowhere."""
    once = patient.network.drawing_once()
    drawn = [once.gradient(patient.x0, logit_margin, patient.goal)[0].flatten(1) for _ in range(DRAWS)]
    alike = torch.stack([F.cosine_similarity(one, other) for one, other in combinations(drawn, 2)]).mean(0)
    typical = float(alike.median())
    return Finding(
        "unstable predictions",
        1 - typical,
        FICKLE,
        f"the model draws random numbers, and the gradients of two draws have a cosine of {typical:.2f}",
        ("eot", "bpda", "square", "transfer"),
        note="it draws random numbers, so gradients are averaged over draws (EOT)",
    )


def vanishing(patient: Patient, flags: Mapping[str, str]) -> Finding:
    """See whether margins are of a size, and outputs of a kind, that a loss has a slope on."""
    typical = float(patient.clean.abs().median())
    decades = abs(math.log10(typical)) if typical > 0 else HOPELESS
    squashed = [flags[name] for name in ("softmax", "squashed") if name in flags]
    return Finding(
        "vanishing loss",
        HOPELESS if squashed else decades,
        DECADES,
        squashed[0].partition(":")[0] if squashed else f"the margin of a typical image is {typical:.3g}",
        ("logits", "loss"),
    )


def busy(flags: Mapping[str, str]) -> Finding:
    """See whether the model optimises while it answers."""
    return Finding(
        "test-time optimisation",
        float("dynamic" in flags),
        0.0,
        flags.get("dynamic", "a forward pass calls for no gradient of its own").partition(",")[0].rstrip("."),
        ("bpda", "square", "transfer"),
    )
