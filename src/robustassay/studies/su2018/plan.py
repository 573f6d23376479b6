"""The plan of the study: attack runs, CLEVER estimates, and transfer to every model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from robustassay.studies.photographs import IMAGENET, available_networks, networks, pixels
from robustassay.studies.running import measured_on_cpu
from robustassay.studies.runs import AttackRun, Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.models import StudiedModel, choose
from robustassay.studies.su2018.settings import ON_CPU, SETTINGS, GoalName, SuAttack, SuSettings
from robustassay.studies.su2018.tasks import CLEVER_TASK, TRANSFER_TASK, SuExperiment, attack_run
from robustassay.studies.task import ComputeTask, Results, Task

FAST, ENDS, CLEVER_STAGE, BETWEEN, ALONE, REST = 0, 1, 3, 4, 6, 7
"""Stages: quick attacks, the least and the largest kappa, CLEVER, the other kappas, goals that do not transfer, and
what no figure of the paper has."""

SHOWN: Final = 0.5
"""Transfer comes after the attacks of its stage, and before those of the next."""

FEWEST_SOURCES: Final = 2
"""Sources that a mean over sources needs."""


def plan(scope: Scope) -> Plan[SuMeasurements]:
    """Plan the tasks of the models that are available."""
    settings = settings_for(scope)
    wanted: Sequence[str] | None = scope.models or settings.models
    if scope.on_imagenet:
        ask_all = scope.models or not settings.models
        wanted = networks(scope.models) if ask_all else available_networks(settings.models or ())
    workspace = Workspace(scope.images(settings.images), scope.out, scope.seed, scope.device)
    notes = [f"Quick: {len(workspace.dataset)} images; {settings.description}."] if scope.quick else []
    made = plan_of(choose(wanted), settings, workspace)
    return replace(made, notes=(*notes, *made.notes))


def settings_for(scope: Scope) -> SuSettings:
    """Return the settings of a scope; a CPU measures less."""
    settings = scope.settings(SETTINGS)
    return ON_CPU.get(scope.name, settings) if measured_on_cpu(scope) else settings


def plan_of(models: tuple[StudiedModel, ...], settings: SuSettings, workspace: Workspace) -> Plan[SuMeasurements]:
    """Plan the tasks of some models on some images, in the order of their stages."""
    experiment = SuExperiment(models, settings, workspace)
    clever, transfers = experiment.clever_tasks(), experiment.transfer_tasks()
    shown = {task.key[1:] for *_, task in transfers if not task.missing()}  # their images are not needed any more
    runs = [replace(run, keep_images=run.keep_images and run.key not in shown) for run in attack_runs(models, settings)]
    stage = _stages(settings)
    made = zip(runs, workspace.tasks(runs), strict=True)
    staged: list[tuple[float, Task]] = [(stage(run.key[1], run.key[2], False), task) for run, task in made]
    staged += [(stage(goal, attack.name, True), task) for goal, attack, task in transfers]
    staged += [(CLEVER_STAGE, task) for task in clever]
    tasks = tuple(task for _, task in sorted(staged, key=lambda pair: pair[0]))

    def measure(results: Results) -> SuMeasurements:
        attacked = {key[0] for key in results if key[0] not in (CLEVER_TASK, TRANSFER_TASK)}
        estimates: dict[str, list[pd.DataFrame]] = {}
        for task in clever:
            if task.key in results and task.key[1] in attacked:
                estimates.setdefault(task.key[1], []).append(results[task.key])
        return SuMeasurements(
            models=tuple(model for model in experiment.models_with_depth() if model.name in attacked),
            settings=settings,
            results={run.key: results[run.key] for run in runs if run.key in results},
            clever={name: pd.concat(found, ignore_index=True) for name, found in estimates.items()},
            outcomes=_outcomes(transfers, results),
            pixels={model.name: pixels(model.name, workspace.dataset) for model in models},
            left=tuple(task.key for task in tasks if task.key not in results),
            finished=sum(task.key in results for task in tasks),
        )

    return Plan(tasks, measure, (f"{len(models)} models.",), partial=True)


def _stages(settings: SuSettings) -> Callable[[str, str, bool], float]:
    """Return the stage of a goal and an attack, or of its transfer: a limit of time leaves the least important out.

    Every model meets an attack before any model meets those of the next stage. Figure 1 sweeps kappa with a random
    target, Figure 5 that of EAD without one.
    """
    ends = {attack.name for attack in settings.minimum_attacks((settings.kappas[0], settings.kappas[-1]))}
    between = {attack.name for attack in settings.minimum_attacks(settings.kappas)} - ends

    def stage(goal: str, attack: str, shown: bool) -> float:
        of_figure_5 = goal == "untargeted" and attack.startswith("EAD")
        if goal not in settings.transfer_goals:
            return ALONE
        if attack in ends:
            return ENDS + 1 + SHOWN if shown else ENDS + (goal == "untargeted")
        if attack in between:
            return BETWEEN + 1 + shown * SHOWN if of_figure_5 else BETWEEN if goal == "random" and not shown else REST
        return FAST + shown * SHOWN

    return stage


def _outcomes(
    transfers: Sequence[tuple[GoalName, SuAttack, ComputeTask]], results: Results
) -> dict[tuple[GoalName, str], pd.DataFrame]:
    """Join the outcomes of all sources.

    FGSM and I-FGSM that some source lacks are left out. C&W and EAD may have met some models only: their findings
    compare them with others from the same sources.
    """
    found: dict[tuple[GoalName, str], list[pd.DataFrame]] = {}
    lacking = {(goal, attack.name) for goal, attack, task in transfers if task.key not in results}
    for goal, attack, task in transfers:
        if task.key in results and (attack.keeps_images or (goal, attack.name) not in lacking):
            found.setdefault((goal, attack.name), []).append(results[task.key])
    found = {which: tables for which, tables in found.items() if len(tables) >= FEWEST_SOURCES}
    return {which: pd.concat(tables, ignore_index=True) for which, tables in found.items()}


def attack_runs(models: Sequence[StudiedModel], settings: SuSettings) -> tuple[AttackRun, ...]:
    """List the runs, model by model."""
    return tuple(
        attack_run(model, goal, attack, settings)
        for model in models
        for goal in settings.goals
        for attack in settings.attacks(goal)
        if settings.meets(model.name.removeprefix(IMAGENET), goal, attack)
    )
