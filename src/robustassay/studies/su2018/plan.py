"""The plan of the study: attack runs, CLEVER estimates, and transfer to every model."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from robustassay.evaluation.model_ref import choose_device
from robustassay.studies.photographs import IMAGENET, available_networks, networks, pixels
from robustassay.studies.runs import AttackRun, Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.models import StudiedModel, choose
from robustassay.studies.su2018.settings import ON_CPU, SETTINGS, TARGET_RULES, GoalName, SuAttack, SuSettings
from robustassay.studies.su2018.tasks import SuExperiment
from robustassay.studies.task import Results
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
    return ON_CPU.get(scope.name, settings) if choose_device(scope.device).type == "cpu" else settings


def plan_of(models: tuple[StudiedModel, ...], settings: SuSettings, workspace: Workspace) -> Plan[SuMeasurements]:
    """Plan the tasks of some models on some images."""
    experiment = SuExperiment(models, settings, workspace)
    clever, transfers = experiment.clever_tasks(), experiment.transfer_tasks()
    shown = {task.key[1:] for *_, task in transfers if not task.missing()}  # their images are not needed any more
    runs = [replace(run, keep_images=run.keep_images and run.key not in shown) for run in attack_runs(models, settings)]

    def measure(results: Results) -> SuMeasurements:
        estimates: dict[str, list[pd.DataFrame]] = {}
        for task in clever:
            estimates.setdefault(task.key[1], []).append(results[task.key])
        outcomes: dict[tuple[GoalName, str], list[pd.DataFrame]] = {}
        for goal, attack, task in transfers:
            outcomes.setdefault((goal, attack.name), []).append(results[task.key])
        return SuMeasurements(
            models=experiment.models_with_depth(),
            settings=settings,
            results={run.key: results[run.key] for run in runs},
            clever={name: pd.concat(found, ignore_index=True) for name, found in estimates.items()},
            outcomes={which: pd.concat(found, ignore_index=True) for which, found in outcomes.items()},
            pixels={model.name: pixels(model.name, workspace.dataset) for model in models},
        )

    tasks = (*workspace.tasks(runs), *clever, *(task for *_, task in transfers))
    return Plan(tasks, measure, (f"{len(models)} models.",))


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
