"""Section 7 of Liu et al. 2017 (arXiv:1611.02770): their images, sent to a service with labels of its own.

The images are those of the study's tables: the examples of the reference source (Tables 1 and 2) and those of the
ensemble that left the served model out (Tables 3 and 4). Gaussian noise is one more group, for comparison. Where only
the tables of `liu2017.sent_images` are there, the images that all of them hold are sent.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

import pandas as pd
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.remote import Service, ServiceTransfer, Submitted, submit
from robustassay.rng import Streams
from robustassay.studies.cache import CachedTable
from robustassay.studies.liu2017 import sent_images
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.plan import plan as study_plan
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan
from robustassay.studies.task import ComputeTask, Results

DEVIATION: Final = 25
"""Of Gaussian noise: its RMSD is about that of untargeted examples, as in the paper."""

SEPARATOR: Final = "\n"
"""Between labels in a cached table; labels hold printable characters only."""


@final
@dataclass(frozen=True)
class ExampleGroup:
    """Images made in one way."""

    title: str
    source: str | None  # None is noise
    targeted: bool


@final
@dataclass(frozen=True, eq=False)
class GroupResult:
    """A group's images and the service's answers."""

    group: ExampleGroup
    x_adv: Tensor = field(repr=False)
    answers: ServiceTransfer = field(repr=False)

    def order(self) -> list[int]:
        """Return the rows, those with the target's label first, then those that are misled, then the others."""
        ranks = [
            (not (image.counts and image.matches), not (image.counts and image.wrong)) for image in self.answers.images
        ]
        return sorted(range(len(ranks)), key=lambda row: ranks[row])


@final
@dataclass(frozen=True, eq=False)
class ServiceMeasurements:
    """The answers to all groups."""

    groups: tuple[GroupResult, ...]
    experiment: LiuExperiment = field(repr=False)
    held_out: str
    x: Tensor = field(repr=False)

    def group(self, ensemble: bool, targeted: bool) -> GroupResult:
        """Return one of the paper's four groups."""
        return next(
            one
            for one in self.groups
            if one.group.source and one.group.source.startswith("-") == ensemble and one.group.targeted == targeted
        )

    def counts(self) -> Counter[str]:
        """Count how often each label appears in all answers: to clean images once, and to all others."""
        images = [image for one in self.groups for image in one.answers.images]
        clean = [image.clean_labels for image in self.groups[0].answers.images]
        return Counter(label for labels in [*clean, *(image.labels for image in images)] for label in labels)


def rarest(labels: Sequence[str], counts: Counter[str], most: int = 5) -> tuple[str, ...]:
    """Order an answer as the paper does, by rareness and then by confidence, and return the first labels."""
    return tuple(sorted(labels, key=lambda label: counts[label])[:most])  # a stable sort keeps the service's order


def service_plan(service: Service, held_out: str | None, scope: Scope, examples: Scope) -> Plan[ServiceMeasurements]:
    """Plan the study of one service, on the examples of a finished study of the paper."""
    experiment = study_plan(examples).measure({})
    source, reference = experiment.reference
    left_out = held_out or reference
    if left_out not in experiment.models or left_out == source:
        others = ", ".join(name for name in experiment.models if name != source)
        raise BadRequest(f"The model behind the service must be one that an ensemble left out: --held-out {others}.")
    groups = _groups(source, left_out)
    images = _available(experiment, groups)
    tasks = tuple(_task(service, experiment, group, scope, images) for group in groups)

    def measure(results: Results) -> ServiceMeasurements:
        found = tuple(
            GroupResult(group, _images(experiment, group, images), _from_table(results[task.key]))
            for group, task in zip(groups, tasks, strict=True)
        )
        return ServiceMeasurements(found, experiment, left_out, experiment.x[:images].cpu())

    return Plan(tasks, measure, (f"{images} images, each clean and in {len(groups)} versions.",))


def _groups(source: str, left_out: str) -> tuple[ExampleGroup, ...]:
    """List the groups of the paper, and random noise."""
    sources = ((source, f"{source} alone"), (f"-{left_out}", f"all models but {left_out}"))
    made = [
        ExampleGroup(f"{'targeted' if targeted else 'untargeted'}, {text}", name, targeted)
        for targeted in (False, True)
        for name, text in sources
    ]
    return (*made, ExampleGroup("Gaussian noise", None, False))


def _set_of(group: ExampleGroup) -> ExampleSet:
    return ExampleSet("opt", group.targeted, str(group.source).startswith("-"))


def _available(experiment: LiuExperiment, groups: Sequence[ExampleGroup]) -> int:
    """Return how many images every group has, the first ones of the study."""
    images = len(experiment.images)
    for group in groups:
        if group.source is None or _is_crafted(experiment, group):
            continue
        images = min(images, len(sent_images.kept(experiment, _set_of(group), group.source)))
        if not images:
            raise BadRequest(
                f"{experiment.out} does not hold the {group.title} examples: run `assay study liu2017` with the same "
                "options first, and name its folder with --examples."
            )
    return images


def _is_crafted(experiment: LiuExperiment, group: ExampleGroup) -> bool:
    crafting = experiment.crafting(_set_of(group), str(group.source))
    return not crafting.missing(experiment.folder(_set_of(group), crafting))


def _images(experiment: LiuExperiment, group: ExampleGroup, images: int) -> Tensor:
    """Return the first images of a group."""
    if group.source is not None:
        if _is_crafted(experiment, group):
            return experiment.examples(_set_of(group), group.source).x_adv[:images].cpu()
        return sent_images.kept(experiment, _set_of(group), group.source)[:images]
    x, ids = experiment.x[:images].cpu(), experiment.images.ids[:images]
    noise = Streams.of(experiment.seed, [f"service/{sample}" for sample in ids]).normal(*x.shape[1:])
    return (x + DEVIATION / 255 * noise).clamp(0, 1)


def _task(service: Service, experiment: LiuExperiment, group: ExampleGroup, scope: Scope, images: int) -> ComputeTask:
    """Send one group; the service's own store keeps answers, so none is asked for twice."""
    ids = list(experiment.images.ids[:images])
    made = ["noise", DEVIATION, experiment.seed, experiment.dataset.sha256]
    made = made if group.source is None else experiment.depends_on(_set_of(group))
    depends_on = [service.adapter.identity, group.title, made, ids]
    table = CachedTable(scope.out / "cache", "answers", depends_on)

    def send(results: Results) -> pd.DataFrame:
        targets = experiment.goal(True).labels[:images].cpu() if group.targeted else None
        x, labels = experiment.x[:images].cpu(), experiment.images.labels[:images]
        classes = experiment.dataset.classes
        return _to_table(submit(service, _images(experiment, group, images), labels, classes, targets, x))

    return ComputeTask.of_table((group.title,), f"{group.title}, to the service", images, table, send, _unknown)


def _unknown() -> float:
    """Return the time that a service takes: nothing is known of it."""
    return float("nan")


def _to_table(found: ServiceTransfer) -> pd.DataFrame:
    rows = [
        (
            image.predicted,
            image.truth,
            image.target,
            image.clean_predicted,
            SEPARATOR.join(image.labels),
            SEPARATOR.join(image.clean_labels),
        )
        for image in found.images
    ]
    columns = ["predicted", "truth", "target", "clean_predicted", "labels", "clean_labels"]
    return pd.DataFrame(rows, columns=columns).astype({"target": "Int64"})


def _from_table(table: pd.DataFrame) -> ServiceTransfer:
    images = []
    for row in table.to_dict("records"):
        said, before = (tuple(str(row[name]).split(SEPARATOR)) for name in ("labels", "clean_labels"))
        target = None if pd.isna(row["target"]) else int(row["target"])
        clean = int(row["clean_predicted"])
        images.append(
            Submitted(said[0], int(row["predicted"]), int(row["truth"]), target, before[0], clean, said, before)
        )
    return ServiceTransfer(tuple(images))
