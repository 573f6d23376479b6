"""Turns a diagnosis into remedies: attacks, and gradient fixes for them, those with the most promise first."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, final

from robustassay import attacks
from robustassay.data import Dataset
from robustassay.doctor.candidates import (
    FULL_ON_FIX,
    FULL_ON_RANDOM,
    Candidate,
    build_candidates,
    build_cross_checks,
    gives_gradients,
    other_kinds,
)
from robustassay.doctor.cross_checks import seconds_per_call
from robustassay.doctor.diagnosis import BACKGROUND, DRAWS, check_all, make_probe_set
from robustassay.doctor.gradient_fixes import FixedGradients, copies_per_pass
from robustassay.doctor.indicator import REMEDIES, Diagnosis
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.straight_through import UNSUITABLE
from robustassay.doctor.trials import Trial, left_by_plain_attack, run_trials, try_candidate, within_budget
from robustassay.errors import AssayError
from robustassay.evaluation.adaptive import Advice, Adviser, Remedy
from robustassay.evaluation.flags import Flag
from robustassay.registry import register
from robustassay.results.cross_check import CrossCheck
from robustassay.rng import seeded
from robustassay.target import TargetModel
from robustassay.threat import L0, LInf, ThreatModel

BUDGET_SECONDS: Final = 40.0
BUDGET_IMAGES: Final = 16
"""All remedies together may take this time for so many images."""

LEAST_PASSES: Final = 1250
MOST_PASSES: Final = 40000
"""Bounds of the budget in passes per image. It is the first times a power of two, so that two calls agree on it."""

MIN_WITHOUT_ALARM: Final = 0.25
"""Fraction of the images, and two of them, that a cross-check must break to become a remedy without an alarm."""

LAST_RESORTS: Final = ("square", "transfer")
"""Remedies that do without gradients; they follow an alarm even where their trial broke nothing."""


@final
@register("adviser", "auto")
class DiagnosisAdviser(Adviser):
    """Diagnoses the model and returns remedies for every alarm."""

    def advise(self, target: TargetModel, flags: Sequence[Flag], dataset: Dataset, threat: ThreatModel) -> Advice:
        """Diagnose on the first selected samples; shards are parts of one selection, so all get the same advice."""
        norm = LInf(8 / 255) if isinstance(threat.norm, L0) else threat.norm
        probes = make_probe_set(few_draws(target.exact), dataset, norm)
        diagnosis = check_all(probes, flags)
        with seeded("remedies", target.device):
            found = build_remedies(probes, diagnosis, target.exact.draws)
            remedies = [_keep_applicable(threat, remedy) for remedy in found]
        return Advice(diagnosis.to_json(), tuple(remedy for remedy in remedies if remedy.attacks))

    def cross_check(
        self, target: TargetModel, dataset: Dataset, others: Dataset | None, threat: ThreatModel, gradients: float
    ) -> CrossCheck:
        """Run short attacks one after the other until one of them breaks a sample."""
        started, asked = time.perf_counter(), tuple(dataset.ids)
        if isinstance(threat.norm, L0):
            return CrossCheck(asked, not_examined="it knows no attack under L0")
        try:
            probes = make_probe_set(few_draws(target.exact), dataset, threat.norm, len(asked))
            further = None if others is None else others.images(slice(0, min(BACKGROUND, len(others))))
            probes = replace(probes, background=further)
            found = _run_cross_checks(probes, replace(probes, target=target), gradients)
        except (AssayError, *UNSUITABLE) as error:
            return CrossCheck(asked, not_examined=f"the model fails when it is traced ({error})")
        return replace(found, asked=asked, seconds=time.perf_counter() - started)


def few_draws(target: TargetModel) -> TargetModel:
    """Return a random model with few draws per gradient, and any other model as it is."""
    return target.with_draws(min(target.draws, DRAWS)) if target.random else target


def _run_cross_checks(probes: ProbeSet, searched: ProbeSet, gradients: float) -> CrossCheck:
    """Run all cross-checks, but none with several copies per gradient where it takes more gradients than are allowed.

    Attacks of other kinds follow only where some gradients are allowed, so after a strong attack. They need no change
    of the model, so they search as that attack did: `searched` has its target.
    """
    failed, tried = 0, 0
    quick = replace(probes, target=probes.target.in_tf32())
    repaired = ((quick, candidate) for candidate in build_cross_checks(probes))
    others = ((searched, candidate) for candidate in (other_kinds(searched) if gradients else ()))
    with seeded("cross-check", probes.target.device):
        for attacked, candidate in chain(repaired, others):
            copies = copies_per_pass(candidate.module)
            if copies > 1 and copies * int(attacks.create(candidate.trial).planned_steps or 0) > gradients:
                continue
            broken = try_candidate(attacked, candidate)
            if repairs := isinstance(candidate.module, FixedGradients):
                failed, tried = failed + (broken is None), tried + 1
            if broken is not None and broken.any():
                ids = [one for one, hit in zip(probes.ids, broken.tolist(), strict=True) if hit]
                return CrossCheck(broken=tuple(ids), how=candidate.how, other_kind=not repairs)
    return CrossCheck(not_examined="the model fails under every repair of its gradients" if 0 < tried == failed else "")


def build_remedies(probes: ProbeSet, diagnosis: Diagnosis, draws: int = 1) -> Iterator[Remedy]:
    """Try all candidates on images that a plain attack leaves; build remedies of those that break some of them.

    Inner scores, inactive values, straight-through rules and another loss are tried without an alarm too. `draws` is
    the number of draws per gradient of a random model in the attacks of the remedies.
    """
    candidates = [
        candidate
        for candidate in build_candidates(probes, diagnosis)
        if not isinstance(candidate.module, FixedGradients) or gives_gradients(candidate.module, probes)
    ]
    left = left_by_plain_attack(probes) if candidates else probes
    trials = run_trials(left, candidates) if len(left) else []
    chosen = _choose(trials, candidates, diagnosis, len(left)) or _untried(candidates, diagnosis)
    full = probes.target.with_draws(draws) if probes.target.random else probes.target
    for candidate in within_budget(_with_more_starts(chosen), full, passes_per_image(probes)):
        broken = {trial.candidate.name: int(trial.broken.sum()) for trial in trials}.get(candidate.name, 0)
        tried = f"its trial broke {broken} of {len(left)} images that a plain attack left"
        because = diagnosis.because(candidate.remedy) or tried
        yield Remedy(candidate.name, because, candidate.how, candidate.module, candidate.full)


def passes_per_image(probes: ProbeSet) -> int:
    """Return how many passes per image all remedies together may take."""
    affordable = BUDGET_SECONDS * len(probes) / (BUDGET_IMAGES * seconds_per_call(probes))
    budget = LEAST_PASSES
    while 2 * budget <= min(affordable, MOST_PASSES):
        budget *= 2
    return budget


def _choose(trials: Sequence[Trial], candidates: Sequence[Candidate], diagnosis: Diagnosis, images: int) -> list[Trial]:
    """Keep the trials that broke images; after an alarm, also what was not tried and what does without gradients."""
    if not diagnosis.alarms:
        return [trial for trial in trials if int(trial.broken.sum()) >= max(2, MIN_WITHOUT_ALARM * images)]
    useful = [trial for trial in trials if trial.broken.any()]
    last = [trial for trial in trials if trial.candidate.remedy in LAST_RESORTS and not trial.broken.any()]
    tried = {trial.candidate.name for trial in trials}
    untried = _untried([candidate for candidate in candidates if candidate.name not in tried], diagnosis)
    return [*useful, *untried, *last] if useful else []


def _with_more_starts(trials: Sequence[Trial]) -> list[Trial]:
    """Let the best gradient fix attack from many starts; fixes that broke nothing else in their trial attack once.

    Behind roundings and votes the model is a staircase: one ascent ends on a step just above the boundary, and an
    ascent from elsewhere on one below.
    """
    best = next(
        (one for one in trials if one.candidate.full in (FULL_ON_FIX, FULL_ON_RANDOM) and one.broken.any()), None
    )
    if best is None:
        return list(trials)
    others = [
        replace(one, candidate=one.candidate.with_one_attack()) if one.adds_nothing_to(best) else one
        for one in trials
        if one is not best
    ]
    return [best, Trial.without(best.candidate.with_more_starts()), *others]


def _untried(candidates: Sequence[Candidate], diagnosis: Diagnosis) -> list[Trial]:
    """Order what the diagnosis names as REMEDIES does, where no trial can or did tell more."""
    named = [candidate for candidate in candidates if candidate.remedy in diagnosis.remedies]
    ordered = sorted(named, key=lambda candidate: list(REMEDIES).index(candidate.remedy))
    return [Trial.without(candidate) for candidate in ordered]


def _keep_applicable(threat: ThreatModel, remedy: Remedy) -> Remedy:
    """Keep the attacks that support the norm, and targets where the threat has them."""
    able = []
    for spec in remedy.attacks:
        attack = attacks.create(spec)
        if type(threat.norm) in attack.norms and (threat.target is None or attack.can_target):
            able.append(spec)
    return replace(remedy, attacks=tuple(able))
