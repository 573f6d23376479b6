"""From findings to remedies that an evaluation can run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, final

import torch

from robustassay import attacks
from robustassay.data import Dataset
from robustassay.doctor.cross_checks import SUBSTITUTES, fits_a_substitute
from robustassay.doctor.diagnosis import admit, examine
from robustassay.doctor.gradient_fixes import Rescale, Reverse, Smooth, Treated, Treatment, Unsquash
from robustassay.doctor.indicator import REMEDIES, Diagnosis
from robustassay.doctor.layer_trace import find_bridge, find_tap
from robustassay.doctor.output_checks import DECADES
from robustassay.doctor.probe_set import SEED, Patient
from robustassay.errors import ModelFailed
from robustassay.evaluation.adaptive import Advice, Adviser, Remedy
from robustassay.evaluation.flags import Flag
from robustassay.registry import register
from robustassay.rng import Streams
from robustassay.target import TargetModel
from robustassay.target.batching import LANES
from robustassay.threat import L0, LInf, ThreatModel
from robustassay.threat.losses import logit_margin

TYPICAL: Final = 5.0
"""The margin that rescaled logits have on a typical image: that of an ordinary network."""

NEIGHBOURHOOD: Final = 0.5
"""Size of the changes that a shattered gradient is averaged over, as a part of the radius."""

CLIMBS: Final = ("apgd", "apgd-t")

ON_THE_MODEL_ITSELF: Final[Mapping[str, tuple[str, ...]]] = {
    "loss": ("apgd:loss=dlr",),
    "eot": ("apgd", "apgd:loss=dlr"),
    "restarts": ("pgd:restarts=5",),
    "steps": ("pgd:steps=200,rel_step=0.05",),
    "square": ("square",),
    "transfer": tuple(f"transfer:source={source}" for source in SUBSTITUTES),
}
"""The attacks of remedies that need no other way to the gradients."""


@final
@register("adviser", "auto")
class Doctor(Adviser):
    """Examines the model, and prescribes a remedy for every alarm."""

    def advise(self, network: TargetModel, flags: Sequence[Flag], dataset: Dataset, threat: ThreatModel) -> Advice:
        """Examine on the first images of the whole dataset, so that every part of it gets the same advice."""
        norm = LInf(8 / 255) if isinstance(threat.norm, L0) else threat.norm
        patient = admit(network.exact, dataset, norm)
        diagnosis = examine(patient, flags)
        remedies = tuple(_within(threat, remedy) for remedy in prescribe(patient, diagnosis))
        return Advice(diagnosis.to_json(), tuple(remedy for remedy in remedies if remedy.attacks))


def prescribe(patient: Patient, diagnosis: Diagnosis) -> Iterator[Remedy]:
    """Make the remedies that a diagnosis names, as far as this model allows them."""
    module = patient.network.module
    outlet = _outlet(patient, diagnosis) if "logits" in diagnosis.remedies else []
    for name in diagnosis.remedies:
        if name == "transfer" and not fits_a_substitute(patient):
            continue
        if name in ON_THE_MODEL_ITSELF:
            yield Remedy(name, diagnosis.because(name), REMEDIES[name], module, ON_THE_MODEL_ITSELF[name])
            continue
        treated = Treated(module, outlet if name == "logits" else _inlet(name, patient, outlet))
        if len(treated.treatments) and gives_gradients(treated, patient):
            yield Remedy(name, diagnosis.because(name), REMEDIES[name], treated, CLIMBS)


def _inlet(name: str, patient: Patient, outlet: list[Treatment]) -> list[Treatment]:
    """Make the treatment of this name, with what the outputs need as well; nothing where it cannot be made."""
    if name == "bpda":
        bridge = find_bridge(patient.network.module, patient.x0, patient.goal)
        return [] if bridge is None else [bridge, *outlet]
    return [Reverse() if name == "reversal" else Smooth(NEIGHBOURHOOD * _typical_change(patient)), *outlet]


def gives_gradients(treated: Treated, patient: Patient) -> bool:
    """Try a treatment on a few images: a model may do what no hook can follow, and then it is none."""
    few = slice(0, LANES)
    tried = patient.network.around(treated)
    try:
        gradient, _ = tried.gradient(patient.x0[few], logit_margin, patient.goal.among(few))
        tried.check()
    except ModelFailed:
        return False
    return bool((gradient != 0).any())


def _outlet(patient: Patient, diagnosis: Diagnosis) -> list[Treatment]:
    """Find the values before the last function, and bring them to a size on which losses have a slope."""
    module = patient.network.module
    tap = find_tap(module, patient.x0)
    squashed = bool({"softmax", "squashed"} & diagnosis.flags.keys())
    first: list[Treatment] = [tap] if tap is not None else [Unsquash()] if squashed else []
    with torch.no_grad():
        logits = Treated(module, first).differentiable(patient.x0).float()
    typical = float(patient.goal.margin(logits).abs().median())
    if not 0 < typical < math.inf or abs(math.log10(typical)) <= DECADES:
        return first
    return [*first, Rescale(TYPICAL / typical)]


def _typical_change(patient: Patient) -> float:
    """Return how much a value changes, in the root mean square, at a random point of the ball."""
    away = patient.ball(patient.norm.eps).sample(Streams.of(SEED, patient.ids, patient.x0.device))
    return float((away - patient.x0).square().mean().sqrt())


def _within(threat: ThreatModel, remedy: Remedy) -> Remedy:
    """Keep the attacks that know the norm, and can aim where the threat does."""
    able = []
    for spec in remedy.attacks:
        attack = attacks.create(spec)
        if type(threat.norm) in attack.norms and (threat.target is None or attack.can_target):
            able.append(spec)
    return replace(remedy, attacks=tuple(able))
