"""The plan of the benchmark: every defense against every attack, as runs."""

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from robustassay.errors import BadRequest
from robustassay.studies.dong2020.attacks import ATTACKS, QUERY_GROUPS, BenchmarkAttack, RunKind
from robustassay.studies.dong2020.defenses import (
    ADDED,
    DEFENSES,
    BenchmarkDefense,
    choose,
    imagenet_defenses,
    substitute_for,
)
from robustassay.studies.dong2020.measurements import DongMeasurements, run_key
from robustassay.studies.dong2020.settings import ON_CPU, ON_GPU, SETTINGS, DongSettings
from robustassay.studies.page import comma_list
from robustassay.studies.photographs import pixels
from robustassay.studies.running import measured_on_cpu
from robustassay.studies.runs import AttackRun, Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.task import Results
from robustassay.studies.timing import Passes
from robustassay.threat import L2, Norm, RandomTarget, ThreatModel

STAGES: Final = (
    ("white-box * Linf untargeted fixed", "transfer * Linf untargeted fixed"),
    ("white-box DeepFool Linf untargeted both",),
    ("white-box * Linf untargeted eps",),
    ("score NES Linf untargeted fixed",),
    ("decision Evolutionary L2 untargeted both",),
    ("white-box * L2 untargeted fixed",),
    ("score SPSA Linf untargeted fixed",),
    ("decision Boundary L2 untargeted both",),
    ("score NAttack Linf untargeted fixed",),
    ("transfer * Linf untargeted eps",),
    ("score * Linf untargeted eps",),
    ("transfer * L2 untargeted fixed", "transfer * Linf untargeted steps-*"),
    ("white-box * Linf targeted fixed", "transfer * Linf targeted fixed"),
    ("white-box [!C]* L2 untargeted *",),
    ("score ZOO L2 untargeted both",),
    ("white-box C&W L2 untargeted both",),
    ("white-box [!C]* L2 targeted fixed", "transfer * L2 targeted fixed"),
    ("transfer * untargeted *", "score * untargeted *"),
    ("score NES Linf targeted fixed",),
    ("decision Evolutionary L2 targeted both",),
    ("white-box *",),
)
"""The order of runs: what the paper's main text shows comes first, so that a study which is ended early has it."""

ATTEMPTS: Final = 6
"""Attacks that the search of a sample's smallest eps takes, about; half of their gradients, as a success ends early."""


def plan(scope: Scope) -> Plan[DongMeasurements]:
    """Plan the runs of the defenses that are available."""
    settings = scope.settings(SETTINGS)
    settings = (ON_CPU if measured_on_cpu(scope) else ON_GPU).get(scope.name, settings)
    names = scope.models or settings.rows
    defenses, missing = choose(names, imagenet_defenses() if scope.on_imagenet else DEFENSES)
    if not defenses:
        raise BadRequest("None of these rows has a model in the zoo: name others with --models.")
    workspace = Workspace(scope.images(settings.images), scope.out, scope.seed, scope.device)
    units = {row.label: _unit(row.model, workspace) for row in defenses} if scope.on_imagenet else {}
    runs = attack_runs(defenses, settings, units)

    def measure(results: Results) -> DongMeasurements:
        # Rows are compared with each other, so those of the paper are needed; but random ones, which take the longest.
        own = [row for row in defenses if row.category != ADDED] or defenses
        needed = {row.label for row in own if row.role != "randomized"}
        unfinished = {run.key[1:] for run in runs if run.key not in results and run.key[0] in needed}
        known = {key: result for key, result in results.items() if key[1:] not in unfinished}
        left = tuple(run.key for run in runs if run.key not in known)
        return DongMeasurements(tuple(defenses), tuple(missing), known, settings, scope.on_imagenet, units, left)

    notes = [f"Left out: {row.label}, as its model {row.model} is not in the zoo." for row in missing]
    if scope.quick:
        images = f"{len(workspace.dataset)} images, at most {settings.query_images} for query-based attacks"
        notes.append(f"Quick: {images}; {settings.description}; rows {comma_list(row.label for row in defenses)} only.")
    return Plan(workspace.tasks(runs), measure, tuple(notes), partial=True)


def _unit(model: str, workspace: Workspace) -> float:
    """Return what normalised L2 is measured in: the square root of the number of values of a model's input."""
    return math.sqrt(3 * pixels(model, workspace.dataset))


def attack_runs(
    defenses: Sequence[BenchmarkDefense], settings: DongSettings, units: Mapping[str, float] = MappingProxyType({})
) -> tuple[AttackRun, ...]:
    """List the runs, the cheapest and most needed first; `units` are those of normalised L2, by row.

    Runs of one attack stand together, as a page shows what is finished for every row.
    """
    runs = [
        (_stage(attack, norm, targeted, kind),
         _attack_run(defense, attack, norm, targeted, kind, text, settings, units))
        for norm in settings.norms
        for targeted in settings.goals
        for attack in ATTACKS
        if attack.can_target or not targeted
        for kind, text in _kinds(attack, norm, settings)
        for defense in defenses
        if not settings.leaves_out(attack, norm, targeted, kind, defense.role == "randomized")
    ]  # fmt: skip
    return tuple(run for _, run in sorted(runs, key=lambda staged: staged[0]))


def _stage(attack: BenchmarkAttack, norm: Norm, targeted: bool, kind: RunKind) -> int:
    """Return the place of a run in the order of `STAGES`."""
    name = f"{attack.group} {attack.name} {norm.name} {'targeted' if targeted else 'untargeted'} {kind}"
    stages = (at for at, patterns in enumerate(STAGES) if any(fnmatchcase(name, pattern) for pattern in patterns))
    return next(stages, len(STAGES))


def _kinds(attack: BenchmarkAttack, norm: Norm, settings: DongSettings) -> list[tuple[RunKind, str]]:
    texts = attack.specifications(norm)
    if len(texts) < 2:
        return [("both", text) for text in texts]
    steps = settings.transfer_steps if attack.by_steps else ()
    return [("eps", texts[0]), ("fixed", texts[1]), *((f"steps-{n}", attack.of_steps(norm, n)) for n in steps)]


def _attack_run(
    defense: BenchmarkDefense,
    attack: BenchmarkAttack,
    norm: Norm,
    targeted: bool,
    kind: RunKind,
    text: str,
    settings: DongSettings,
    units: Mapping[str, float],
) -> AttackRun:
    by_query = attack.group in QUERY_GROUPS
    source = substitute_for(defense.model, bool(units)) if attack.group == "transfer" else None
    filled = settings.fill(text, source or "")
    radius = L2(norm.eps * units.get(defense.label, 1.0)) if isinstance(norm, L2) else norm
    return AttackRun(
        key=run_key(defense.label, attack, norm, targeted, kind),
        model=defense.model,
        threat=ThreatModel(radius, RandomTarget() if targeted else None),
        attack=filled,
        passes=_passes(attack, kind, filled, settings),
        smallest_eps=kind == "eps",
        # The search of the smallest eps repeats whole attacks, each with the attack's own budget.
        query_budget=settings.queries if by_query and kind != "eps" else None,
        eot=settings.eot,
        limit=settings.images_of(attack, kind, defense.role == "randomized"),
        source=source,
    )


def _passes(attack: BenchmarkAttack, kind: RunKind, text: str, settings: DongSettings) -> Passes:
    """Count the passes per sample of a run, at most."""
    attempts = ATTEMPTS if kind == "eps" else 1
    if attack.group in QUERY_GROUPS:
        return Passes(forwards=attempts * settings.queries)
    if attack.name == "C&W":
        return Passes(gradients=settings.searches * settings.cw_steps)
    if attack.name == "DeepFool":
        return Passes(gradients=50)  # about five steps, each with one gradient per class
    steps = int(text.rpartition("steps=")[2].partition(",")[0].rstrip(")")) if "steps=" in text else 1
    if attack.group == "transfer":
        return Passes(source_gradients=attempts * steps)
    return Passes(gradients=-(-attempts // 2) * steps)
