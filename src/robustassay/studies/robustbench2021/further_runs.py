"""Attack runs beside the main one: under L2, with other seeds, and Square with many restarts."""

from dataclasses import replace
from typing import Final

from robustassay.studies.analyses.model_measurements import key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.robustbench2021.settings import EXPRESS, L2_THREAT, RESTARTS, RobustBenchSettings
from robustassay.studies.runs import AttackRun, RunTask
from robustassay.studies.timing import Passes

L2: Final = "l2"
SQUARE: Final = f"square with {RESTARTS} restarts"


def seed_name(seed: int) -> str:
    """Name the run with another seed."""
    return f"seed {seed}"


def further_tasks(setup: AnalysisSetup, settings: RobustBenchSettings) -> list[RunTask]:
    """Return the tasks of all further runs."""
    tasks: list[RunTask] = []
    for model in setup.models:
        own = AttackRun(key("run", model, L2), model, L2_THREAT, settings.attack, EXPRESS, limit=settings.l2_images)
        tasks += [RunTask(own, setup.workspace)] * bool(settings.l2_images)
    for model in (name for name in settings.seed_models if name in setup.models and settings.seed_images):
        for seed in settings.seeds:
            name = key("run", model, seed_name(seed))
            own = AttackRun(name, model, setup.threat, settings.attack, EXPRESS, limit=settings.seed_images)
            tasks.append(RunTask(own, replace(setup.workspace, seed=seed)))
    for model in (name for name in settings.restart_models if name in setup.models and settings.restart_images):
        attack, passes = f"square:restarts={RESTARTS}", Passes(forwards=5000 * RESTARTS)
        name = key("run", model, SQUARE)
        own = AttackRun(name, model, setup.threat, attack, passes, limit=settings.restart_images)
        tasks.append(RunTask(own, setup.workspace))
    return tasks
