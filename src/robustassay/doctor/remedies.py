"""Turns a diagnosis into remedies: attacks, and gradient fixes for them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, final

import torch

from robustassay import attacks
from robustassay.data import Dataset
from robustassay.doctor.cross_checks import SUBSTITUTES, substitutes_apply
from robustassay.doctor.diagnosis import check_all, make_probe_set
from robustassay.doctor.gradient_fixes import (
    FixedGradients,
    GradientFix,
    LogOutputs,
    RescaleLogits,
    ReverseGradient,
    SmoothGradient,
)
from robustassay.doctor.indicator import REMEDIES, Diagnosis
from robustassay.doctor.layer_trace import find_bypass, find_logit_layer
from robustassay.doctor.output_checks import MAX_DECADES
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.errors import ModelFailed
from robustassay.evaluation.adaptive import Advice, Adviser, Remedy
from robustassay.evaluation.flags import Flag
from robustassay.registry import register
from robustassay.rng import Streams
from robustassay.target import TargetModel
from robustassay.target.batching import LANES
from robustassay.threat import L0, LInf, ThreatModel
from robustassay.threat.losses import logit_margin

RESCALED_MARGIN: Final = 5.0
"""Median margin of rescaled logits: that of an ordinary network."""

SMOOTHING_SIZE: Final = 0.5
"""Size of the noise that smoothed gradients average over, as a fraction of a random perturbation."""

GRADIENT_ATTACKS: Final = ("apgd", "apgd-t")

ATTACKS_ON_THE_MODEL: Final[Mapping[str, tuple[str, ...]]] = {
    "loss": ("apgd:loss=dlr",),
    "eot": ("apgd", "apgd:loss=dlr"),
    "restarts": ("pgd:restarts=5",),
    "steps": ("pgd:steps=200,rel_step=0.05",),
    "square": ("square",),
    "transfer": tuple(f"transfer:source={source}" for source in SUBSTITUTES),
}
"""Attacks of the remedies that need no gradient fix."""


@final
@register("adviser", "auto")
class DiagnosisAdviser(Adviser):
    """Diagnoses the model and returns remedies for every alarm."""

    def advise(self, target: TargetModel, flags: Sequence[Flag], dataset: Dataset, threat: ThreatModel) -> Advice:
        """Diagnose on the first images of the whole dataset, so that every shard gets the same advice."""
        norm = LInf(8 / 255) if isinstance(threat.norm, L0) else threat.norm
        probes = make_probe_set(target.exact, dataset, norm)
        diagnosis = check_all(probes, flags)
        remedies = tuple(_keep_applicable(threat, remedy) for remedy in build_remedies(probes, diagnosis))
        return Advice(diagnosis.to_json(), tuple(remedy for remedy in remedies if remedy.attacks))


def build_remedies(probes: ProbeSet, diagnosis: Diagnosis) -> Iterator[Remedy]:
    """Build the remedies that a diagnosis names, where this model allows them."""
    module = probes.target.module
    output_fixes = _output_fixes(probes, diagnosis) if "logits" in diagnosis.remedies else []
    for name in diagnosis.remedies:
        if name == "transfer" and not substitutes_apply(probes):
            continue
        if name in ATTACKS_ON_THE_MODEL:
            yield Remedy(name, diagnosis.because(name), REMEDIES[name], module, ATTACKS_ON_THE_MODEL[name])
            continue
        fixed = FixedGradients(module, output_fixes if name == "logits" else _input_fixes(name, probes, output_fixes))
        if len(fixed.fixes) and gives_gradients(fixed, probes):
            yield Remedy(name, diagnosis.because(name), REMEDIES[name], fixed, GRADIENT_ATTACKS)


def _input_fixes(name: str, probes: ProbeSet, output_fixes: list[GradientFix]) -> list[GradientFix]:
    """Build the gradient fixes of a remedy, the output fixes included; none where they cannot be built."""
    if name == "bpda":
        bypass = find_bypass(probes.target, probes.x0, probes.goal)
        return [] if bypass is None else [bypass, *output_fixes]
    return [
        ReverseGradient() if name == "reversal" else SmoothGradient(SMOOTHING_SIZE * _typical_perturbation(probes)),
        *output_fixes,
    ]


def gives_gradients(fixed: FixedGradients, probes: ProbeSet) -> bool:
    """Check on a few images that the fixed model has a gradient: hooks cannot follow every model."""
    few = slice(0, LANES)
    tried = probes.target.with_module(fixed)
    try:
        gradient, _ = tried.gradient(probes.x0[few], logit_margin, probes.goal.among(few))
        tried.check()
    except ModelFailed:
        return False
    return bool((gradient != 0).any())


def _output_fixes(probes: ProbeSet, diagnosis: Diagnosis) -> list[GradientFix]:
    """Find the values before the last function, and scale them so that losses have a gradient."""
    module = probes.target.module
    layer_output = find_logit_layer(probes.target, probes.x0)
    squashed = bool({"softmax", "squashed"} & diagnosis.flags.keys())
    first: list[GradientFix] = [layer_output] if layer_output is not None else [LogOutputs()] if squashed else []
    with torch.no_grad():
        logits = probes.target.with_module(FixedGradients(module, first)).call_differentiable(probes.x0)
    typical = float(probes.goal.margin(logits).abs().median())
    if not 0 < typical < math.inf or abs(math.log10(typical)) <= MAX_DECADES:
        return first
    return [*first, RescaleLogits(RESCALED_MARGIN / typical)]


def _typical_perturbation(probes: ProbeSet) -> float:
    """Return the root mean square of the perturbation at a random point of the ball."""
    away = probes.ball(probes.norm.eps).sample(Streams.of(SEED, probes.ids, probes.x0.device))
    return float((away - probes.x0).square().mean().sqrt())


def _keep_applicable(threat: ThreatModel, remedy: Remedy) -> Remedy:
    """Keep the attacks that support the norm, and targets where the threat has them."""
    able = []
    for spec in remedy.attacks:
        attack = attacks.create(spec)
        if type(threat.norm) in attack.norms and (threat.target is None or attack.can_target):
            able.append(spec)
    return replace(remedy, attacks=tuple(able))
