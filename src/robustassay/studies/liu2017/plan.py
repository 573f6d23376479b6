"""The plan of the study: craft every set of examples, test it on every model, then the other measures."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, final

from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.progress import Progress
from robustassay.studies.crafting import LoadedModel
from robustassay.studies.liu2017.costs import Costs
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.measures import (
    COSINES,
    DIAMETERS,
    ERRORS_ALONG_GRADIENT,
    MINIMAL_RMSD,
    NOISE,
    Measure,
)
from robustassay.studies.liu2017.models import choose, family_of
from robustassay.studies.liu2017.planes import (
    CLOSED,
    FAR,
    LINEARITY,
    NEAR,
    PLANES,
    TARGET_PLANE,
    TARGET_PLANES,
    plane_measure,
)
from robustassay.studies.liu2017.settings import (
    IMAGENET_ON_CPU,
    NEEDED,
    ON_CPU,
    OTHER_OBJECTIVES,
    SETTINGS,
    ExampleSet,
    LiuSettings,
)
from robustassay.studies.photographs import COMMON, available_networks, framed, networks
from robustassay.studies.running import measured_on_cpu
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.task import ComputeTask, Key, Results, Task, TaskCost

OF_OUTCOMES: Final = (TARGET_PLANE, TARGET_PLANES)
"""Measures on examples of an ensemble."""


def plan(scope: Scope) -> Plan[LiuExperiment]:
    """Load the models, choose the images that all of them classify correctly, and plan the tasks."""
    device = choose_device(scope.device)
    settings = settings_for(scope)
    whole = scope.whole_dataset()
    dataset = whole if settings.candidates is None else whole.take(min(settings.candidates, len(whole)))
    if scope.on_imagenet:
        dataset = framed(dataset, COMMON)
        named = choose(networks(scope.models) if scope.models else available_networks(settings.models))
    else:
        named = choose(scope.models or settings.models)
    if scope.on_imagenet and len(named) == len(IMAGENET_ON_CPU.models):
        settings = dataclasses.replace(settings, rates=IMAGENET_ON_CPU.rates)  # of as many networks
    frame = COMMON if scope.on_imagenet else None
    models = {name: LoadedModel.of(model, name, len(dataset.classes), device, frame) for name, model in named.items()}
    families = {name: family_of(model) for name, model in named.items()}
    experiment = LiuExperiment(models, dataset, settings, scope.out, scope.seed, families)
    found = len(experiment.images)
    fewer = f", fewer than the {settings.sizes.images} asked for" if found < settings.sizes.images else ""
    note = f"{found} images that all {len(models)} models classify correctly{fewer}."
    made = tasks(experiment)
    return Plan(made, lambda _: experiment.finished(), (note,), optional=optional(made))


def settings_for(scope: Scope) -> LiuSettings:
    """Return the settings of a scope; a CPU measures less, and `--limit` sets the number of images."""
    settings = scope.settings(SETTINGS)
    settings = ON_CPU.get(scope.name, settings) if measured_on_cpu(scope) else settings
    if scope.limit is None:
        return settings
    return dataclasses.replace(settings, sizes=dataclasses.replace(settings.sizes, images=scope.limit))


def tasks(experiment: LiuExperiment) -> tuple[Task, ...]:
    """List the tasks: main sets, then the other measures, then other objectives; what others read comes first."""
    costs = Costs(experiment)
    sets = experiment.settings.example_sets()
    main = [task for one in sets if one not in OTHER_OBJECTIVES for task in _set_tasks(experiment, one, costs)]
    others = [task for one in sets if one in OTHER_OBJECTIVES for task in _set_tasks(experiment, one, costs)]
    return (*main, *_measures(experiment, costs), *others)


def optional(made: Iterable[Task]) -> frozenset[Key]:
    """Name the tasks that a page can do without: those of sets that are not needed."""
    kinds = ("examples", "outcomes")
    return frozenset(task.key for task in made if task.key[0] in kinds and task.key[1] not in NEEDED)


def _set_tasks(experiment: LiuExperiment, example_set: ExampleSet, costs: Costs) -> Iterator[Task]:
    """List the tasks of one set: each source, and the outcomes."""
    for source in experiment.sources(example_set):
        yield CraftTask(experiment, example_set, source, costs)
    table = experiment.outcome_table(example_set)
    yield ComputeTask(
        ("outcomes", example_set.name),
        f"{example_set.description}, to all models",
        len(experiment.images),
        table.exists,
        _reader(experiment, example_set),
        costs.outcomes,
        independent=True,
        reads=tuple(_crafted(example_set, source) for source in experiment.sources(example_set)),
    )


def _crafted(example_set: ExampleSet, source: str) -> Key:
    """Name the task that crafts the examples of one source."""
    return "examples", example_set.name, source


def _reader(experiment: LiuExperiment, example_set: ExampleSet) -> Callable[[Results], object]:
    return lambda _: experiment.outcomes(example_set)


def _measures(experiment: LiuExperiment, costs: Costs) -> Iterator[ComputeTask]:
    seconds: tuple[tuple[Measure, Callable[[], float]], ...] = (
        (COSINES, costs.free),
        (DIAMETERS, costs.diameters),
        (PLANES, costs.planes),
        *((measure, costs.minimal_rmsd) for measure in MINIMAL_RMSD),
        (ERRORS_ALONG_GRADIENT, costs.errors_along),
        (plane_measure(NEAR), costs.plane),
        (plane_measure(FAR), costs.plane),
        (CLOSED, costs.plane),
        (TARGET_PLANE, costs.plane),
        (TARGET_PLANES, costs.planes),
        (LINEARITY, costs.free),
        *((measure, costs.noise) for measure in NOISE),
    )
    for measure, cost in seconds:
        yield _measure_task(experiment, measure, cost)


def _measure_task(experiment: LiuExperiment, measure: Measure, cost: Callable[[], float]) -> ComputeTask:
    def finished() -> bool:
        # What the target plane depends on is an outcome, which is known only after that task.
        if measure in OF_OUTCOMES and not experiment.outcome_table(measure.needs).exists():
            return False
        return measure.table(experiment).exists()

    images = len(experiment.images)
    return ComputeTask(
        _measured(measure),
        measure.title,
        images,
        finished,
        lambda _: measure.get(experiment),
        cost,
        independent=True,
        reads=_read_by(measure),
    )


def _measured(measure: Measure) -> Key:
    """Name the task of a measure."""
    return "measure", measure.title


def _read_by(measure: Measure) -> tuple[Key, ...]:
    """Name the tasks whose results a measure reads: planes through one image need its choice among the counted ones."""
    if measure in OF_OUTCOMES:
        return (("outcomes", measure.needs.name),)
    through_one = (plane_measure(NEAR).title, plane_measure(FAR).title, CLOSED.title, LINEARITY.title)
    far = (_measured(plane_measure(FAR)),) if measure is CLOSED else ()
    return (_measured(PLANES), *far) if measure.title in through_one else ()


@final
@dataclass(frozen=True, eq=False)
class CraftTask(Task):
    """Craft the examples of one source of a set."""

    experiment: LiuExperiment = field(repr=False)
    example_set: ExampleSet
    source: str
    costs: Costs = field(repr=False)
    is_read: bool = False  # only the outcomes count then: nothing is crafted

    @property
    def key(self) -> Key:
        """Name of the result."""
        return _crafted(self.example_set, self.source)

    @property
    def needs(self) -> tuple[Key, ...]:
        """Return the outcomes whose RMSD it is matched to."""
        return (("outcomes", self.example_set.matched_to.name),) if self.example_set.is_matched else ()

    @property
    def _is_optimisation(self) -> bool:
        return self.example_set.method.startswith("opt")

    def missing(self) -> int:
        """Count the images without an example; none are needed once the outcomes are known."""
        if self.experiment.outcome_table(self.example_set).exists():
            return 0
        if self.is_read or not self.experiment.is_begun(self.example_set, self.source):
            return len(self.experiment.samples(self.example_set))
        if self.example_set.is_matched and not self.experiment.outcome_table(self.example_set.matched_to).exists():
            return len(self.experiment.samples(self.example_set))  # its radius is not known yet
        crafting = self.experiment.crafting(self.example_set, self.source)
        return len(crafting.missing(self.experiment.folder(self.example_set, crafting)))

    def to_read(self) -> Task:
        """Return the same task for a page."""
        return dataclasses.replace(self, is_read=True)

    def cost(self) -> TaskCost:
        """Estimate the gradients of the missing images."""
        missing = self.missing()
        if not missing:
            return TaskCost()
        passes = self.experiment.settings.sizes.steps if self._is_optimisation else 2
        models = self.experiment.sources(self.example_set)[self.source]
        per_image = sum(self.costs.times[model.name].gradient for model in models)
        return TaskCost(missing * passes * per_image)

    def run(self, results: Results, progress: Progress) -> None:
        """Craft what is missing; the examples stay on disk, to be read by those who need them."""
        if self.missing():
            self.experiment.examples(self.example_set, self.source, progress)
        else:
            images = len(self.experiment.samples(self.example_set))
            progress.start(f"{self.example_set.description}, examples on {self.source}", images, images)
            progress.finish()
