"""Builds the candidates for remedies: every change of gradients or outputs that this model allows."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, final

from torch import nn

from robustassay.doctor.cross_checks import SUBSTITUTES, smoothing_size, substitutes_apply
from robustassay.doctor.gradient_fixes import (
    Bypass,
    FixedGradients,
    GradientFix,
    JointOutputs,
    LayerMaps,
    LogOutputs,
    RescaleLogits,
    ReverseGradient,
    SmoothGradient,
    StraightThrough,
)
from robustassay.doctor.indicator import REMEDIES, Diagnosis
from robustassay.doctor.layer_errors import find_wrong_layers
from robustassay.doctor.layer_trace import find_bypass
from robustassay.doctor.margins import inner_scores, typical_margin
from robustassay.doctor.output_checks import MAX_DECADES
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.doctor.straight_through import UNSUITABLE, straight_through
from robustassay.doctor.taps import MAX_JOINT_TAPS, MAX_TAPS, find_logit_layer, taps_to_attack
from robustassay.doctor.value_fixes import value_fixes
from robustassay.errors import ModelFailed
from robustassay.rng import Streams
from robustassay.target.batching import LANES
from robustassay.threat.losses import logit_margin

RESCALED_MARGIN: Final = 5.0
"""Median margin of rescaled logits: that of an ordinary network."""

TRIAL_ON_FIX: Final = "pma:steps=20"
SHORT_TRIAL: Final = "pma:steps=10"
FEW_COPIES: Final = 4
"""Smoothed gradients without an alarm cost as much as a short plain attack."""

FULL_ON_FIX: Final = ("pma", "express", "apgd-t:steps=50")
"""PMA first: it never looks at the model's own loss, which may be flat where the fixed gradient is not."""

OTHER_KINDS: Final = {
    "Auto-PGD from three starts": "apgd:steps=20,restarts=3",
    "FAB": "fab:steps=10,targets=3",
    "300 queries of Square": "square:steps=300,rescale_schedule=true",
}
"""Short attacks that a cascade lacks: where the loss has many maxima, each kind ends in another one."""

STARTS: Final = 16
"""Starts of the attack that follows on the best fix."""

ALWAYS: Final = ("loss", "targets")
"""Remedies on the model itself that are tried without an alarm: a class may stand in the way of the others."""

FULL_ON_RANDOM: Final = ("pma:steps=50",)


def from_starts(starts: int) -> str:
    """Return the attack from this many starts."""
    return f"pma:steps=50,restarts={starts}"


@final
@dataclass(frozen=True)
class Candidate:
    """One possible remedy: a module to attack, a short attack for a trial, and the attacks in full."""

    remedy: str  # of REMEDIES
    variant: str  # of this remedy; "" for its first one
    module: nn.Module
    trial: str
    full: tuple[str, ...]
    how: str

    @property
    def name(self) -> str:
        """The name of the remedy, with that of the variant."""
        return f"{self.remedy}-{self.variant}" if self.variant else self.remedy

    def with_one_attack(self) -> "Candidate":
        """Return the same with the first of its attacks only."""
        return replace(self, full=self.full[:1])

    def with_more_starts(self) -> "Candidate":
        """Return the same fix with an attack from many starts."""
        variant = f"{self.variant}-again" if self.variant else "again"
        return replace(self, variant=variant, full=(from_starts(STARTS),), how=f"{self.how}; from many starts")


def build_candidates(probes: ProbeSet, diagnosis: Diagnosis) -> Iterator[Candidate]:
    """Build the cross-checks that are always tried, and the remedies that the diagnosis names.

    Inner outputs come first among the fixes, so innermost: they count the functions of the model, not those of rules.
    """
    named = diagnosis.remedies
    outputs = output_fixes(probes, diagnosis) if "logits" in named else []
    rules = straight_through(probes)
    front = [fix for fix, _ in rules[:1]]
    if "logits" in named and outputs:
        yield _on_fix(probes, "logits", "", outputs, "")
    with suppress(*UNSUITABLE):
        yield from _by_inner_scores(probes, rules)
    with suppress(*UNSUITABLE):
        yield from _by_inactive_values(probes, rules)
    yield from _by_rules(probes, rules, outputs)
    if "bpda" in named and (bypass := _bypass(probes)) is not None:
        yield _on_fix(probes, "bpda", "linear", [*outputs, bypass], "a linear map replaces what stops gradients")
    if "bpda" in named and (maps := _wrong_layers(probes)) is not None:
        how = f"linear maps replace {len(maps.layers)} layers whose gradient does not predict how they change"
        yield _on_fix(probes, "bpda", "layers", [*outputs, *front, maps], how)
    if "reversal" in named:
        yield _on_fix(probes, "reversal", "", [*outputs, ReverseGradient()], "")
    if "smoothing" in named:
        smooth = SmoothGradient(smoothing_size(probes))
        yield _on_fix(probes, "smoothing", "", [*outputs, *front, smooth], "")
    yield from _on_the_model(probes, dict.fromkeys((*ALWAYS, *named)))


def build_cross_checks(probes: ProbeSet) -> Iterator[Candidate]:
    """Build attacks on inner values and through other gradients, the dearest last; raise if a model is unsuitable."""
    rules = straight_through(probes)
    yield from _by_inner_scores(probes, rules)
    with suppress(*UNSUITABLE):
        yield from _by_inactive_values(probes, rules)
    yield from _by_rules(probes, rules, [])
    smooth = _on_fix(
        probes, "smoothing", "", [SmoothGradient(smoothing_size(probes), FEW_COPIES)], "gradients of noisy copies"
    )
    yield replace(smooth, trial=SHORT_TRIAL)


def other_kinds(probes: ProbeSet) -> Iterator[Candidate]:
    """Build short attacks of other kinds on the model itself; a strong attack leaves them nothing."""
    for how, attack in OTHER_KINDS.items():
        yield Candidate("restarts", "", probes.target.module, attack, (attack,), how)


def _by_inner_scores(probes: ProbeSet, rules: list[tuple[StraightThrough, str]]) -> Iterator[Candidate]:
    front = [fix for fix, _ in rules[:1]]
    for variant, taps, how in _tap_fixes(probes):
        yield _on_fix(probes, "logits", variant, [*taps, *front], how)


def _by_inactive_values(probes: ProbeSet, rules: list[tuple[StraightThrough, str]]) -> Iterator[Candidate]:
    for number, (fixes, how) in enumerate(value_fixes(probes, rules), 1):
        yield _on_fix(probes, "inactive", str(number), fixes, f"{how} (it has no effect at the images)")


def _by_rules(
    probes: ProbeSet, rules: list[tuple[StraightThrough, str]], outputs: list[GradientFix]
) -> Iterator[Candidate]:
    for fix, how in rules:
        variant = "unrolled" if fix.unroll else "soft" if fix.soft else ""
        yield _on_fix(probes, "bpda", variant, [*outputs, fix], f"gradients through {how}")


def _bypass(probes: ProbeSet) -> Bypass | None:
    """Find a linear map around what stops gradients."""
    try:
        return find_bypass(probes.target, probes.x0, probes.goal)
    except UNSUITABLE:
        return None


def _wrong_layers(probes: ProbeSet) -> LayerMaps | None:
    """Compare layers at the images and at random points of their balls."""
    near = probes.ball(probes.norm.eps).sample(Streams.of(SEED, probes.ids, probes.x0.device))
    try:
        return find_wrong_layers(probes.target, probes.x0, near)
    except UNSUITABLE:
        return None


def _on_fix(probes: ProbeSet, remedy: str, variant: str, fixes: list[GradientFix], how: str) -> Candidate:
    module = FixedGradients(probes.target.module, fixes)
    full = FULL_ON_RANDOM if probes.target.random else FULL_ON_FIX
    return Candidate(remedy, variant, module, TRIAL_ON_FIX, full, how or REMEDIES[remedy])


def gives_gradients(module: nn.Module, probes: ProbeSet) -> bool:
    """Check on a few images that a fixed model has a gradient: hooks cannot follow every model."""
    few = slice(0, LANES)
    tried = probes.target.with_module(module)
    try:
        gradient, _ = tried.gradient(probes.x0[few], logit_margin, probes.goal.among(few))
        tried.check()
    except ModelFailed:
        return False
    return bool((gradient != 0).any())


def _tap_fixes(probes: ProbeSet) -> Iterator[tuple[str, list[GradientFix], str]]:
    """Take inner outputs as logits: all of layers together in all calls, and each alone in its last call.

    Where no layer has such outputs, all of functions are taken together.
    """
    best = taps_to_attack(probes.target, probes.x0)
    tried = ([tap for tap in best if tap.is_layer] or best)[:MAX_JOINT_TAPS]
    sizes = {tap: size for tap in tried if (size := typical_margin(probes, [tap.output])) >= 0}
    if sum(tap.calls for tap in sizes) > 1:
        factors = [RESCALED_MARGIN / max(size, 1e-12) for size in sizes.values()]
        how = f"all outputs of {', '.join(tap.name for tap in sizes)} together as logits"
        yield "taps", [JointOutputs([tap.output for tap in sizes], factors)], how
    for tap in best[:MAX_TAPS]:
        yield f"tap-{_plain(tap.name)}", inner_scores(probes, tap.output), f"the outputs of {tap.name} as logits"


def _plain(name: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in name)


def output_fixes(probes: ProbeSet, diagnosis: Diagnosis) -> list[GradientFix]:
    """Find the values before the last function, and scale them so that losses have a gradient."""
    layer_output = find_logit_layer(probes.target, probes.x0)
    squashed = bool({"softmax", "squashed"} & diagnosis.flags.keys())
    first: list[GradientFix] = [layer_output] if layer_output is not None else [LogOutputs()] if squashed else []
    return [*first, *_rescaling(probes, first)]


def _rescaling(probes: ProbeSet, fixes: list[GradientFix]) -> list[GradientFix]:
    """Scale logits whose margins are so large or small that some loss has no gradient."""
    typical = typical_margin(probes, fixes)
    if not 0 < typical < math.inf or abs(math.log10(typical)) <= MAX_DECADES:
        return []
    return [RescaleLogits(RESCALED_MARGIN / typical)]


_ON_THE_MODEL: Final = {
    "restarts": ("pgd:steps=10", ("pgd:restarts=5",)),
    "loss": ("apgd:loss=dlr,steps=20", ("apgd:loss=dlr",)),
    "targets": ("apgd-t:steps=15,targets=4", ("apgd-t:targets=9",)),
    "eot": ("apgd:steps=20", ("apgd:steps=60", "apgd:loss=dlr,steps=60")),
    "steps": ("pgd:steps=60,rel_step=0.05", ("pgd:steps=200,rel_step=0.05",)),
    "square": ("square:steps=300,rescale_schedule=true", ("square",)),
    "transfer": (f"transfer:source={SUBSTITUTES[0]}", tuple(f"transfer:source={source}" for source in SUBSTITUTES)),
}
"""Remedies that need no change of the gradient: the attack of the trial, and the attacks in full."""


def _on_the_model(probes: ProbeSet, named: Iterable[str]) -> Iterator[Candidate]:
    for remedy in named:
        if remedy in _ON_THE_MODEL and (remedy != "transfer" or substitutes_apply(probes)):
            trial, full = _ON_THE_MODEL[remedy]
            yield Candidate(remedy, "", probes.target.module, trial, full, REMEDIES[remedy])
