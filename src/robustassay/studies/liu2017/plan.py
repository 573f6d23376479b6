"""The plan of the study: craft every set of examples, test it on every model, then the other measures."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, final

from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.progress import Progress
from robustassay.studies.crafting import LoadedModel
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.measures import (
    COSINES,
    DEVIATIONS,
    DIAMETERS,
    ERRORS_ALONG_GRADIENT,
    LINE_POINTS,
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
from robustassay.studies.liu2017.settings import IMAGENET_ON_CPU, ON_CPU, SETTINGS, ExampleSet, LiuSettings
from robustassay.studies.photographs import COMMON, available_networks, framed, networks
from robustassay.studies.running import measured_on_cpu
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.task import ComputeTask, Key, Results, Task, TaskCost
from robustassay.studies.timing import PassTimes
from robustassay.threat import Untargeted

TIMED: Final = 32
SEARCHED: Final = 0.15
"""Share of a line that is searched until its image transfers, about."""


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
    return Plan(tasks(experiment), lambda _: experiment, (note,))


def settings_for(scope: Scope) -> LiuSettings:
    """Return the settings of a scope; a CPU measures less, and `--limit` sets the number of images."""
    settings = scope.settings(SETTINGS)
    settings = ON_CPU.get(scope.name, settings) if measured_on_cpu(scope) else settings
    if scope.limit is None:
        return settings
    return dataclasses.replace(settings, sizes=dataclasses.replace(settings.sizes, images=scope.limit))


def tasks(experiment: LiuExperiment) -> tuple[Task, ...]:
    """List the tasks: the sets that others are matched to come first."""
    costs = _Costs(experiment)
    images = len(experiment.images)
    made: list[Task] = []
    for example_set in experiment.settings.example_sets():
        made += [CraftTask(experiment, example_set, source, costs) for source in experiment.sources(example_set)]
        table = experiment.outcome_table(example_set)
        made.append(
            ComputeTask(
                ("outcomes", example_set.name),
                f"{example_set.description}, to all models",
                images,
                table.exists,
                _reader(experiment, example_set),
                costs.outcomes,
                independent=True,
                reads=tuple(_crafted(example_set, source) for source in experiment.sources(example_set)),
            )
        )
    return (*made, *_measures(experiment, costs))


def _crafted(example_set: ExampleSet, source: str) -> Key:
    """Name the task that crafts the examples of one source."""
    return "examples", example_set.name, source


def _reader(experiment: LiuExperiment, example_set: ExampleSet) -> Callable[[Results], object]:
    return lambda _: experiment.outcomes(example_set)


def _measures(experiment: LiuExperiment, costs: "_Costs") -> Iterator[ComputeTask]:
    seconds: tuple[tuple[Measure, Callable[[], float]], ...] = (
        (NOISE, costs.noise),
        (MINIMAL_RMSD, costs.minimal_rmsd),
        (ERRORS_ALONG_GRADIENT, costs.errors_along),
        (COSINES, costs.free),
        (DIAMETERS, costs.diameters),
        (PLANES, costs.planes),
        (plane_measure(NEAR), costs.plane),
        (plane_measure(FAR), costs.plane),
        (CLOSED, costs.plane),
        (TARGET_PLANE, costs.plane),
        (TARGET_PLANES, costs.planes),
        (LINEARITY, costs.free),
    )
    for measure, cost in seconds:
        yield _measure_task(experiment, measure, cost)


def _measure_task(experiment: LiuExperiment, measure: Measure, cost: Callable[[], float]) -> ComputeTask:
    def finished() -> bool:
        # What the target plane depends on is an outcome, which is known only after that task.
        if measure in (TARGET_PLANE, TARGET_PLANES) and not experiment.outcome_table(measure.needs).exists():
            return False
        return measure.table(experiment).exists()

    name, images = ("measure", measure.title), len(experiment.images)
    of_outcomes = measure in (TARGET_PLANE, TARGET_PLANES)
    reads: tuple[Key, ...] = (("outcomes", measure.needs.name),) if of_outcomes else ()
    return ComputeTask(name, measure.title, images, finished, lambda _: measure.get(experiment), cost, True, reads)


@final
@dataclass(frozen=True, eq=False)
class CraftTask(Task):
    """Craft the examples of one source of a set."""

    experiment: LiuExperiment = field(repr=False)
    example_set: ExampleSet
    source: str
    costs: "_Costs" = field(repr=False)

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
        if self.example_set.is_matched and not self.experiment.outcome_table(self.example_set.matched_to).exists():
            return len(self.experiment.samples(self.example_set))  # its radius is not known yet
        crafting = self.experiment.crafting(self.example_set, self.source)
        return len(crafting.missing(self.experiment.folder(self.example_set, crafting)))

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


@final
@dataclass(frozen=True, eq=False)
class _Costs:
    """Estimated seconds of the study's tasks."""

    experiment: LiuExperiment

    @cached_property
    def times(self) -> dict[str, PassTimes]:
        """The time of a pass, per model."""
        return {name: _pass_times(self.experiment, name) for name in self.experiment.models}

    @property
    def _forward(self) -> float:
        """One image through every model."""
        return sum(each.forward for each in self.times.values())

    @property
    def _images(self) -> int:
        return len(self.experiment.images)

    def outcomes(self) -> float:
        """Every example of a set through every model."""
        return self._images * len(self.experiment.models) * self._forward

    def noise(self) -> float:
        """Every draw of noise through every model."""
        return self._images * self._forward * len(DEVIATIONS) * self.experiment.settings.sizes.draws

    def minimal_rmsd(self) -> float:
        """The searched part of two lines, through two models each."""
        settings = self.experiment.settings
        return self._images * self._forward * 4 * SEARCHED * settings.line_end / settings.sizes.line_step

    def errors_along(self) -> float:
        """Every point of a line through every model."""
        return self._images * self._forward * LINE_POINTS

    def plane(self) -> float:
        """Every point of a plane through every model."""
        return self.experiment.settings.grid**2 * self._forward

    def planes(self) -> float:
        """Every point of the planes that are counted through every model."""
        settings = self.experiment.settings
        return settings.sizes.planes * settings.coarse**2 * self._forward

    def diameters(self) -> float:
        """The searched part of four lines through every model."""
        return self._images * self._forward * 4 * SEARCHED * self.experiment.settings.line_end

    def free(self) -> float:
        """Too little to count."""
        return 0.0


def _pass_times(experiment: LiuExperiment, name: str) -> PassTimes:
    """Time the passes of a model on a few images."""
    target, x = experiment.targets[name], experiment.x[:TIMED]
    goal = Untargeted(experiment.goal(False).labels[: len(x)])
    target.logits(x[:1])
    seconds = []
    for query in (target.logits, lambda x: target.gradient(x, lambda logits, goal: goal.loss(logits), goal)):
        start = time.perf_counter()
        query(x)
        seconds.append((time.perf_counter() - start) / len(x))
    return PassTimes(seconds[0], seconds[1])
