"""Section 7 of Liu et al. 2017 (arXiv:1611.02770): transfer of adversarial examples to a remote service.

The service answers with labels of its own. The paper sends examples crafted on one model and on an ensemble, untargeted
and targeted. Random noise of the same size is one more group, for comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

import pandas as pd
import torch
from torch import Tensor

from robustassay import attacks
from robustassay.analysis.intervals import wilson
from robustassay.attacks.transfer.transfer import Transfer as TransferAttack
from robustassay.attacks.transfer.transfer import load_substitute
from robustassay.data import Dataset
from robustassay.evaluation.progress import Progress
from robustassay.remote import Service, ServiceTransfer, submit
from robustassay.rng import Streams
from robustassay.studies.page import Figure, Finding, Setup, Table
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan, Study
from robustassay.studies.task import UNKNOWN_COST, Key, Results, Task, TaskCost
from robustassay.threat import Ball, Norm, RandomTarget, Targeted, ThreatModel

SHOWN: Final = 5
"""Images per group in the figure; those that misled the service come first."""


@final
@dataclass(frozen=True)
class ServiceSettings:
    """Which models examples are crafted on, and how."""

    single: str
    ensemble: tuple[str, ...]
    attack: str
    norm: Norm

    def groups(self) -> "tuple[ExampleGroup, ...]":
        """List the groups of the paper, and random noise."""
        sources = [(self.single, "one model"), ("+".join(self.ensemble), f"{len(self.ensemble)} models")]
        crafted = [
            ExampleGroup(f"{text}, {'targeted' if targeted else 'untargeted'}", source, targeted)
            for targeted in (False, True)
            for source, text in sources
        ]
        return (*crafted, ExampleGroup("random signs", None, False))


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

    def examples(self) -> list[int]:
        """Return the rows of the images to draw."""
        order = [
            (not (image.counts and image.matches), not (image.counts and image.wrong)) for image in self.answers.images
        ]
        return sorted(range(len(order)), key=lambda row: order[row])[:SHOWN]


@final
@dataclass(frozen=True, eq=False)
class ServiceMeasurements:
    """The answers to all groups."""

    groups: tuple[GroupResult, ...]
    dataset: Dataset = field(repr=False)
    description: str


def service_study(service: Service, settings: ServiceSettings) -> Study[ServiceMeasurements]:
    """Return the study of one service."""

    def plan(scope: Scope) -> Plan[ServiceMeasurements]:
        whole = scope.whole_dataset()
        dataset = whole.take(min(scope.limit or len(whole), len(whole)))
        tasks = tuple(GroupTask(service, settings, group, dataset, scope.seed) for group in settings.groups())

        def measure(results: Results) -> ServiceMeasurements:
            how = f"{len(dataset)} images of {dataset.name}, {settings.attack} within {settings.norm}"
            found = tuple(results[task.key] for task in tasks)
            return ServiceMeasurements(found, dataset, f"{how}; {service.budget}.")

        return Plan(tasks, measure)

    return Study(
        name="service",
        title="Liu et al. (2017), section 7: transfer to a service",
        plan=plan,
        setup=setup,
        findings=no_findings,
        tables=tables,
        figures=figures,
    )


@final
@dataclass(frozen=True, eq=False)
class GroupTask(Task):
    """Craft one group and send it; the service's own store keeps answers, so none is asked for twice."""

    service: Service = field(repr=False)
    settings: ServiceSettings
    group: ExampleGroup
    dataset: Dataset = field(repr=False)
    seed: int

    @property
    def key(self) -> Key:
        """Name of the result."""
        return (self.group.title,)

    def missing(self) -> int:
        """Return all images: which answers are stored is known only once they are crafted."""
        return len(self.dataset)

    def cost(self) -> TaskCost:
        """Return no estimate: a service's time is not known."""
        return UNKNOWN_COST

    def run(self, results: Results, progress: Progress) -> GroupResult:
        """Craft the images and send them."""
        progress.start(f"{self.group.title}, {len(self.dataset)} images to the service", len(self.dataset), 0)
        try:
            targets, x_adv = self._craft()
            x, labels, classes = self.dataset.images(slice(None)), self.dataset.labels, self.dataset.classes
            return GroupResult(self.group, x_adv, submit(self.service, x_adv, labels, classes, targets, x))
        finally:
            progress.finish()

    def _craft(self) -> tuple[Tensor | None, Tensor]:
        """Return targets, if any, and images."""
        x, rng, norm = self.dataset.images(slice(None)), Streams.of(self.seed, self.dataset.ids), self.settings.norm
        ball = Ball(norm, x, torch.full((len(x),), norm.eps))
        if self.group.source is None:
            return None, ball.step(x, rng.uniform(*x.shape[1:]) - 0.5, ball.eps)
        threat = ThreatModel(norm, RandomTarget() if self.group.targeted else None)
        logits = load_substitute(self.group.source, x.device).logits(x)
        goal = threat.goal(self.dataset.ids, self.dataset.labels, logits, self.seed)
        attack = TransferAttack(source=self.group.source, attack=attacks.create(self.settings.attack))
        x_adv = attack.make(ball, goal, rng)
        return goal.labels if isinstance(goal, Targeted) else None, x_adv


def setup(measured: ServiceMeasurements) -> Setup:
    """Describe the scale, and what the rates count."""
    lines = (
        measured.description,
        "",
        "Misled: the service labels the clean image correctly and the adversarial image wrongly. Intervals are 95 % "
        "Wilson. In the paper 57 % (one model) and 76 % (several) of targeted images misled the service, and 2 % and "
        "18 % got a label close to the target, by the authors' own judgement.",
    )
    return Setup(notes=lines)


def no_findings(measured: ServiceMeasurements) -> list[Finding]:
    """Return none: the setup states the paper's rates."""
    return []


def tables(measured: ServiceMeasurements) -> list[Table]:
    """Return the rates per group; every answer is in the second table's CSV."""
    answers = answer_table(measured.groups, measured.dataset)
    title = "Every answer of the service"
    return [rates(measured.groups), Table("answers", title, tuple(answers.columns), (), answers, printed=False)]


def figures(measured: ServiceMeasurements) -> list[Figure]:
    """Return the figure of example images, after the paper's Table 6."""
    return [Figure("examples", "Images sent to the service, with its labels", measured)]


def rates(groups: Sequence[GroupResult]) -> Table:
    """Return the rates of each group, with 95 % intervals, over images whose clean version is labelled correctly."""
    rows = []
    for one in groups:
        counted = one.answers.counted
        row = [one.group.title, one.group.source or "nothing", str(counted)]
        for rate in (one.answers.error_rate, one.answers.matching_rate):
            if counted and rate == rate:
                low, high = wilson(round(rate * counted), counted)
                row.append(f"{rate:.0%} ({low:.0%} to {high:.0%})")
            else:
                row.append("")
        rows.append(tuple(row))
    heading = ("group", "made on", "images", "misled", "matches target")
    return Table("rates", "Rates per group", heading, tuple(rows), pd.DataFrame(rows, columns=list(heading)))


def answer_table(groups: Sequence[GroupResult], dataset: Dataset) -> pd.DataFrame:
    """Return one row per image: the true label, and the service's labels of the clean and the adversarial image."""
    rows = [
        {
            "group": one.group.title,
            "source": one.group.source,
            "sample_id": sample,
            "truth": dataset.classes[image.truth],
            "target": None if image.target is None else dataset.classes[image.target],
            "clean_label": image.clean_label,
            "adversarial_label": image.label,
            "counts": image.counts,
            "misled": image.counts and image.wrong,
            "matches_target": image.counts and image.matches,
        }
        for one in groups
        for sample, image in zip(dataset.ids, one.answers.images, strict=True)
    ]
    return pd.DataFrame(rows)
