"""The plan of the study: attack runs, predictions, adversarial examples and Lipschitz estimates per model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from robustassay import data as datasets
from robustassay import models
from robustassay.data import Dataset
from robustassay.data.corruptions import corrupt
from robustassay.errors import BadRequest
from robustassay.studies import analyses
from robustassay.studies.analyses.model_measurements import ATTACKED, MEMBERS, OOD, SHIFT, TEST, ModelMeasurements
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.kept_images import kept
from robustassay.studies.out_of_distribution import out_of_distribution_images
from robustassay.studies.photographs import available_networks, networks
from robustassay.studies.robustbench2021.further_runs import further_tasks
from robustassay.studies.robustbench2021.leaderboards import study_boards
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements
from robustassay.studies.robustbench2021.mixture import mixture
from robustassay.studies.robustbench2021.order import in_order
from robustassay.studies.robustbench2021.settings import (
    FALLS,
    FEW_CLASSES,
    PASSES,
    RANDOM_RECIPES,
    SETTINGS,
    RobustBenchSettings,
)
from robustassay.studies.runs import is_available
from robustassay.studies.scope import ExtraData, Scope
from robustassay.studies.study import Plan
from robustassay.studies.task import Results


def plan(scope: Scope) -> Plan[RobustBenchMeasurements]:
    """Plan the measurements that the analyses need; a page can be made of a part of them."""
    settings, names = scope.settings(SETTINGS), list(scope.models)
    if scope.on_imagenet:
        names = networks(names) if names or not settings.models else available_networks(settings.models)
    chosen = choose(names, settings)
    setup = analysis_setup(chosen, scope.images(settings.images), settings, scope)
    kinds = analysis_kinds(settings, scope.extra.members, len(setup.datasets[TEST].classes))
    inner, further = setup.plan(analyses.requires(setup, kinds)), further_tasks(setup, settings)

    def measure(results: Results) -> RobustBenchMeasurements:
        made, left_out = finished_analyses(setup, kinds, results)
        runs = [*(setup.run_task(model) for model in setup.models), *further]
        boards, problems = study_boards(setup, runs, results, scope.extra.published)
        return RobustBenchMeasurements(setup, results, made, boards, problems, settings, left_out)

    notes = [f"{len(setup.models)} models."]
    if scope.quick:
        images = f"{len(setup.datasets[TEST])} images, {setup.robust_images} of them under attack"
        notes.insert(0, f"Quick: {images}; {settings.description}.")
    return Plan(in_order((*inner.tasks, *further)), measure, tuple(notes), partial=True)


def finished_analyses(
    setup: AnalysisSetup, kinds: Sequence[str], results: Results
) -> tuple[dict[str, analyses.Analysis], dict[str, tuple[str, ...]]]:
    """Make every analysis of the models whose measurements are finished; list the models that are left out of each."""
    made: dict[str, analyses.Analysis] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    for kind in kinds:
        ready = tuple(
            model
            for model in setup.models
            if all(name in results for name in analyses.requires(replace(setup, models=(model,)), [kind]))
        )
        left_out[kind] = tuple(model for model in setup.models if model not in ready)
        if len(ready) > 1:
            measured = ModelMeasurements(ready, setup.datasets, setup.threat, results)
            made |= {analysis.name: analysis for analysis in analyses.make(measured, [kind])}
    return made, left_out


def choose(names: Sequence[str], settings: RobustBenchSettings) -> tuple[str, ...]:
    """Return the models asked for, or those of the settings that are available."""
    for name in names:
        if not is_available(name):
            raise BadRequest(f"There is no model called {name!r}: take one of `assay list models`, or one of a file.")
    chosen = dict.fromkeys(names or settings.models or _deterministic())
    return tuple(name for name in chosen if is_available(name))


def analysis_kinds(settings: RobustBenchSettings, members: str | None, classes: int = 10) -> list[str]:
    """Return the analyses that are possible.

    Privacy needs images that the models were trained on, fairness several images per class.
    """
    kinds = {
        "time": True,
        "shift": True,
        "robust-shift": settings.attacked_shift_images > 0,
        "calibration": True,
        "ood": True,
        "fairness": classes <= FEW_CLASSES,
        "privacy": members is not None,
        "smoothness": True,
        "transfer": settings.transfer,
    }
    return [kind for kind, possible in kinds.items() if possible]


def analysis_setup(names: tuple[str, ...], test: Dataset, settings: RobustBenchSettings, scope: Scope) -> AnalysisSetup:
    """Return the models, datasets and attack of the study."""
    return AnalysisSetup(
        names,
        _datasets(test, settings, scope.extra, scope.seed),
        scope.out,
        settings.threat,
        settings.attack,
        PASSES.get(settings.attack),
        None if settings.robust_images is None else min(settings.robust_images, len(test)),
        _limits(names, scope.extra.robust_limit, len(test)),
        settings.lipschitz_images,
        settings.lipschitz_steps,
        settings.lipschitz_stages,
        crafting_images=settings.crafting_images,
        seed=scope.seed,
        device=scope.device,
    )


def _deterministic() -> tuple[str, ...]:
    return tuple(name for name in models.names() if models.card(name).recipe not in RANDOM_RECIPES)


def _limits(names: Sequence[str], limit: int | None, images: int) -> Mapping[str, int]:
    """Return how many images are attacked for the models of the zoo that do not fall at once."""
    slow = [name for name in names if name in models.names() and models.card(name).robust_accuracy > FALLS]
    return {} if limit is None else dict.fromkeys(slow, min(limit, images))


def _datasets(test: Dataset, settings: RobustBenchSettings, extra: ExtraData, seed: int) -> dict[str, Dataset]:
    few = test.take(min(settings.shift_images, len(test)))
    chosen = {TEST: test}
    chosen |= {f"{SHIFT}{spec}": kept(corrupt(few, spec, seed)) for spec in settings.shifts}
    shifted = [_as_many(name, test) for name in extra.shift]
    chosen |= {f"{SHIFT}{other.name}": other for other in shifted}
    if images := settings.attacked_shift_images:
        chosen |= {f"{ATTACKED}corruptions": mixture(test, images, seed)}
        chosen |= {f"{ATTACKED}{other.name}": _spread(other, images) for other in shifted}
    if not extra.ood:
        chosen |= {f"{OOD}{kind}": out_of_distribution_images(test, kind, seed) for kind in settings.ood}
    chosen |= {f"{OOD}{other.name}": other for other in (_as_many(name, test) for name in extra.ood)}
    if extra.members:
        chosen[MEMBERS] = _as_many(extra.members, test)
    return chosen


def _as_many(name: str, test: Dataset) -> Dataset:
    return _spread(datasets.load(name), len(test))


def _spread(dataset: Dataset, images: int) -> Dataset:
    """Return so many images at equal steps: datasets often come in the order of their classes."""
    if images >= len(dataset):
        return dataset
    return dataset.select([at * len(dataset) // images for at in range(images)])
