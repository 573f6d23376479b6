"""The plan of the study: an attack run, predictions and Lipschitz estimates per model."""

from collections.abc import Sequence

from robustassay import data as datasets
from robustassay import models
from robustassay.data import Dataset
from robustassay.data.corruptions import corrupt
from robustassay.errors import BadRequest
from robustassay.leaderboard import boards, gather
from robustassay.studies import analyses
from robustassay.studies.analyses.model_measurements import MEMBERS, OOD, SHIFT, TEST
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.out_of_distribution import out_of_distribution_images
from robustassay.studies.photographs import available_networks, networks
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements
from robustassay.studies.robustbench2021.settings import EXPRESS, FEW_CLASSES, SETTINGS, RobustBenchSettings
from robustassay.studies.runs import is_available
from robustassay.studies.scope import ExtraData, Scope
from robustassay.studies.study import Plan
from robustassay.studies.task import Results


def plan(scope: Scope) -> Plan[RobustBenchMeasurements]:
    """Plan the measurements that the analyses need."""
    settings, names = scope.settings(SETTINGS), list(scope.models)
    if scope.on_imagenet:
        names = networks(names) if names or not settings.models else available_networks(settings.models)
    chosen = choose(names, settings)
    setup = analysis_setup(chosen, scope.images(settings.images), settings, scope)
    kinds = analysis_kinds(scope.extra.members, len(setup.datasets[TEST].classes))
    inner = setup.plan(analyses.requires(setup, kinds))

    def measure(results: Results) -> RobustBenchMeasurements:
        measured = inner.measure(results)
        gathered = gather([setup.run_task(model).folder for model in setup.models], scope.extra.published)
        made = {analysis.name: analysis for analysis in analyses.make(measured, kinds)}
        entries = tuple(boards(gathered.entries))
        return RobustBenchMeasurements(measured, made, entries, tuple(gathered.problems), settings)

    notes = [f"{len(setup.models)} models."]
    if scope.quick:
        images = f"{len(setup.datasets[TEST])} images, {setup.robust_images} of them under attack"
        notes.insert(0, f"Quick: {images}; {settings.description}.")
    return Plan(inner.tasks, measure, tuple(notes))


def choose(names: Sequence[str], settings: RobustBenchSettings) -> tuple[str, ...]:
    """Return the models asked for, or those of the settings that are available."""
    for name in names:
        if not is_available(name):
            raise BadRequest(f"There is no model called {name!r}: take one of `assay list models`, or one of a file.")
    chosen = dict.fromkeys(names or settings.models or models.names())
    return tuple(name for name in chosen if is_available(name))


def analysis_kinds(members: str | None, classes: int = 10) -> list[str]:
    """Return the analyses that are possible.

    Privacy needs images that the models were trained on, fairness several images per class.
    """
    fairness, privacy = ["fairness"] if classes <= FEW_CLASSES else [], ["privacy"] if members else []
    return ["time", "shift", "calibration", "ood", *fairness, *privacy, "smoothness"]


def analysis_setup(names: tuple[str, ...], test: Dataset, settings: RobustBenchSettings, scope: Scope) -> AnalysisSetup:
    """Return the models, datasets and attack of the study."""
    return AnalysisSetup(
        names,
        _datasets(test, settings, scope.extra, scope.seed),
        scope.out,
        settings.threat,
        settings.attack,
        EXPRESS if settings.attack == "express" else None,
        None if settings.robust_images is None else min(settings.robust_images, len(test)),
        settings.lipschitz_images,
        settings.lipschitz_steps,
        settings.lipschitz_stages,
        seed=scope.seed,
        device=scope.device,
    )


def _datasets(test: Dataset, settings: RobustBenchSettings, extra: ExtraData, seed: int) -> dict[str, Dataset]:
    chosen = {TEST: test}
    chosen |= {f"{SHIFT}{spec}": corrupt(test, spec, seed) for spec in settings.shifts}
    chosen |= {f"{SHIFT}{name}": _as_many(name, test) for name in extra.shift}
    chosen |= {f"{OOD}{kind}": out_of_distribution_images(test, kind, seed) for kind in settings.ood}
    chosen |= {f"{OOD}{name}": _as_many(name, test) for name in extra.ood}
    if extra.members:
        chosen[MEMBERS] = _as_many(extra.members, test)
    return chosen


def _as_many(name: str, test: Dataset) -> Dataset:
    whole = datasets.load(name)
    return whole.take(min(len(whole), len(test)))
