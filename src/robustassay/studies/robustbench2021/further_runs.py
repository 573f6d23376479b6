"""Attack runs beside the main one: a second attack, under L2, with other seeds, and Square with many restarts."""

from dataclasses import replace
from typing import Final

from robustassay.studies.analyses.model_measurements import key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.robustbench2021.settings import (
    L2_THREAT,
    PASSES,
    RESTART_PARTS,
    RESTARTS,
    RobustBenchSettings,
)
from robustassay.studies.runs import AttackRun, RunTask
from robustassay.studies.task import Key
from robustassay.studies.timing import Passes
from robustassay.threat import ThreatModel

L2: Final = "l2"
SQUARE: Final = f"square with {RESTARTS} restarts"


def square_names() -> tuple[str, ...]:
    """Name the runs whose restarts add up to all."""
    return tuple(f"{SQUARE}, part {part}" for part in range(1, RESTART_PARTS + 1))


def seed_name(seed: int) -> str:
    """Name the run with another seed."""
    return f"seed {seed}"


def further_tasks(setup: AnalysisSetup, settings: RobustBenchSettings) -> list[RunTask]:
    """Return the tasks of all further runs."""
    tasks: list[RunTask] = []
    passes = PASSES.get(settings.attack, Passes(forwards=2, gradients=100))
    for model in setup.models:
        own = _run(key("run", model, L2), model, L2_THREAT, settings.attack, passes, settings.l2_images)
        tasks += [RunTask(own, setup.workspace)] * bool(settings.l2_images)
        if attack := settings.compared_attack:
            main, name = setup.run_task(model).attack_run, key("run", model, attack)
            own = _run(name, model, setup.threat, attack, PASSES[attack], main.limit)
            tasks.append(RunTask(own, setup.workspace))
    for model in (name for name in settings.seed_models if name in setup.models and settings.seed_images):
        for seed in settings.seeds:
            name = key("run", model, seed_name(seed))
            own = _run(name, model, setup.threat, settings.attack, passes, settings.seed_images)
            tasks.append(RunTask(own, replace(setup.workspace, seed=seed)))
    for model in (name for name in settings.restart_models if name in setup.models and settings.restart_images):
        restarts = RESTARTS // RESTART_PARTS
        attack, queries = f"square:restarts={restarts}", Passes(forwards=5000 * restarts)
        for part, data in enumerate(square_names()):  # each with random numbers of its own
            own = _run(key("run", model, data), model, setup.threat, attack, queries, settings.restart_images)
            tasks.append(RunTask(own, replace(setup.workspace, seed=setup.seed + part)))
    return tasks


def _run(name: Key, model: str, threat: ThreatModel, attack: str, passes: Passes, limit: int | None) -> AttackRun:
    return AttackRun(name, model, threat, attack, passes, limit=limit, whole_on_gpu=True)
