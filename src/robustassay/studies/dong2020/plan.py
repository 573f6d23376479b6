"""The plan of the benchmark: every defense against every attack, as runs."""

from collections.abc import Sequence
from typing import Final

from robustassay.errors import BadRequest
from robustassay.studies.dong2020.attacks import ATTACKS, BenchmarkAttack, RunKind
from robustassay.studies.dong2020.defenses import (
    IMAGENET_RANDOMIZED,
    IMAGENET_UNDEFENDED,
    BenchmarkDefense,
    choose,
    imagenet_defenses,
    preferred,
    substitute_for,
)
from robustassay.studies.dong2020.measurements import DongMeasurements, run_key
from robustassay.studies.dong2020.settings import SETTINGS, DongSettings
from robustassay.studies.page import comma_list
from robustassay.studies.photographs import networks
from robustassay.studies.runs import AttackRun, Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.task import Results
from robustassay.studies.timing import Passes
from robustassay.threat import Norm, RandomTarget, ThreatModel

ATTEMPTS: Final = 6
"""Attacks that the search of a sample's smallest eps takes, about; half of their gradients, as a success ends early."""


def plan(scope: Scope) -> Plan[DongMeasurements]:
    """Plan the runs of the defenses that are available."""
    settings = scope.settings(SETTINGS)
    names = scope.models or settings.rows
    defenses, missing = choose(names, imagenet_defenses(preferred(networks(None)))) if scope.on_imagenet else (
        choose(names)
    )  # fmt: skip
    if not defenses:
        raise BadRequest("None of these rows has a model in the zoo: name others with --models.")
    workspace = Workspace(scope.images(settings.images), scope.out, scope.seed, scope.device)

    def measure(results: Results) -> DongMeasurements:
        found = DongMeasurements(tuple(defenses), tuple(missing), results, settings.description, settings.norms)
        return found.on_imagenet(IMAGENET_UNDEFENDED, IMAGENET_RANDOMIZED) if scope.on_imagenet else found

    notes = [f"Left out: {row.label}, as its model {row.model} is not in the zoo." for row in missing]
    if scope.quick:
        images = f"{len(workspace.dataset)} images, at most {settings.query_images} for query-based attacks"
        notes.append(f"Quick: {images}; {settings.description}; rows {comma_list(row.label for row in defenses)} only.")
    return Plan(workspace.tasks(attack_runs(defenses, settings)), measure, tuple(notes))


def attack_runs(defenses: Sequence[BenchmarkDefense], settings: DongSettings) -> tuple[AttackRun, ...]:
    """List the runs, row by row, so that each model is loaded once."""
    return tuple(
        _attack_run(defense, attack, norm, targeted, kind, text, settings)
        for defense in defenses
        for norm in settings.norms
        for targeted in settings.goals
        for attack in ATTACKS
        if attack.can_target or not targeted
        for kind, text in _kinds(attack, norm)
        if not settings.leaves_out(attack, norm, kind)
    )


def _kinds(attack: BenchmarkAttack, norm: Norm) -> list[tuple[RunKind, str]]:
    texts = attack.specifications(norm)
    if len(texts) < 2:
        return [("both", text) for text in texts]
    return [("eps", texts[0]), ("fixed", texts[1])]


def _attack_run(
    defense: BenchmarkDefense,
    attack: BenchmarkAttack,
    norm: Norm,
    targeted: bool,
    kind: RunKind,
    text: str,
    settings: DongSettings,
) -> AttackRun:
    by_query = attack.group in ("score", "decision")
    return AttackRun(
        key=run_key(defense.label, attack, norm, targeted, kind),
        model=defense.model,
        threat=ThreatModel(norm, RandomTarget() if targeted else None),
        attack=settings.fill(text, substitute_for(defense.model) if attack.group == "transfer" else ""),
        passes=_passes(attack, kind, text, settings),
        smallest_eps=kind == "eps",
        # The search of the smallest eps repeats whole attacks, each with the attack's own budget.
        query_budget=settings.queries if by_query and kind != "eps" else None,
        limit=settings.query_images if by_query else None,
        source=substitute_for(defense.model) if attack.group == "transfer" else None,
    )


def _passes(attack: BenchmarkAttack, kind: RunKind, text: str, settings: DongSettings) -> Passes:
    """Count the passes per sample of a run, at most."""
    attempts = ATTEMPTS if kind == "eps" else 1
    if attack.group in ("score", "decision"):
        return Passes(forwards=attempts * settings.queries)
    if attack.name == "C&W":
        return Passes(gradients=settings.searches * settings.cw_steps)
    if attack.name == "DeepFool":
        return Passes(gradients=50)  # about five steps, each with one gradient per class
    steps = int(text.rpartition("steps=")[2].partition(",")[0].rstrip(")")) if "steps=" in text else 1
    if attack.group == "transfer":
        return Passes(source_gradients=attempts * steps)
    return Passes(gradients=-(-attempts // 2) * steps)
