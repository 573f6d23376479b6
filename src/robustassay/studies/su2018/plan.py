"""The plan of the study: attack runs, CLEVER estimates, and transfer to every model."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from robustassay.studies.photographs import IMAGENET, available_networks, networks, pixels
from robustassay.studies.running import measured_on_cpu
from robustassay.studies.runs import AttackRun, Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.models import StudiedModel, choose
from robustassay.studies.su2018.settings import ON_CPU, SETTINGS, TARGET_RULES, GoalName, SuAttack, SuSettings
from robustassay.studies.su2018.tasks import CLEVER_TASK, TRANSFER_TASK, SuExperiment
from robustassay.studies.task import ComputeTask, Results
from robustassay.studies.timing import Passes
from robustassay.threat import ThreatModel


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
    return Plan(made.tasks, made.measure, (*notes, *made.notes))


def settings_for(scope: Scope) -> SuSettings:
    """Return the settings of a scope; a CPU measures less."""
    settings = scope.settings(SETTINGS)
    return ON_CPU.get(scope.name, settings) if measured_on_cpu(scope) else settings


def plan_of(models: tuple[StudiedModel, ...], settings: SuSettings, workspace: Workspace) -> Plan[SuMeasurements]:
    """Plan the tasks of some models on some images: what transfers first, goals that do not at last."""
    experiment = SuExperiment(models, settings, workspace)
    clever, transfers = experiment.clever_tasks(), experiment.transfer_tasks()
    shown = {task.key[1:] for *_, task in transfers if not task.missing()}  # their images are not needed any more
    runs = [replace(run, keep_images=run.keep_images and run.key not in shown) for run in attack_runs(models, settings)]
    first = [run for run in runs if run.key[1] in settings.transfer_goals]
    last = [run for run in runs if run.key[1] not in settings.transfer_goals]
    shows = (task for *_, task in transfers)
    tasks = (*workspace.tasks(first), *shows, *clever, *workspace.tasks(last))

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
        )

    return Plan(tasks, measure, (f"{len(models)} models.",), partial=True)


def _outcomes(
    transfers: Sequence[tuple[GoalName, SuAttack, ComputeTask]], results: Results
) -> dict[tuple[GoalName, str], pd.DataFrame]:
    """Join the outcomes of all sources; those of an attack that some source lacks would compare different sources."""
    found: dict[tuple[GoalName, str], list[pd.DataFrame]] = {}
    lacking = {(goal, attack.name) for goal, attack, task in transfers if task.key not in results}
    for goal, attack, task in transfers:
        if (goal, attack.name) not in lacking:
            found.setdefault((goal, attack.name), []).append(results[task.key])
    return {which: pd.concat(tables, ignore_index=True) for which, tables in found.items()}


def attack_runs(models: Sequence[StudiedModel], settings: SuSettings) -> tuple[AttackRun, ...]:
    """List the runs, model by model."""
    return tuple(
        _attack_run(model, goal, attack, settings)
        for model in models
        for goal in settings.goals
        for attack in settings.attacks(goal)
        if settings.meets(model.name.removeprefix(IMAGENET), goal, attack)
    )


def _attack_run(model: StudiedModel, goal: GoalName, attack: SuAttack, settings: SuSettings) -> AttackRun:
    return AttackRun(
        key=(model.name, goal, attack.name),
        model=model.name,
        threat=ThreatModel(attack.norm, TARGET_RULES[goal]),
        attack=attack.attack,
        passes=Passes(gradients=attack.gradients),
        smallest_eps=attack.smallest_eps,
        keep_images=attack.keeps_images and goal in settings.transfer_goals,
        limit=settings.limit(attack),
    )
