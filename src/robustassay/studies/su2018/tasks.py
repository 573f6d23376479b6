"""The tasks beside attack runs: CLEVER per model and chunk of images, and transfer per source model."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, final

import pandas as pd

from robustassay import attacks
from robustassay.data import Dataset
from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.progress import NoProgress
from robustassay.studies.cache import CachedTable
from robustassay.studies.crafting import Crafting, LoadedModel
from robustassay.studies.measures.clever import Clever
from robustassay.studies.measures.depth import depth
from robustassay.studies.measures.transfer_matrix import CleanLogits, Examples, transfer_outcomes
from robustassay.studies.photographs import IMAGENET, as_seen_by
from robustassay.studies.runs import AttackRun, RunTask, Workspace
from robustassay.studies.su2018.models import StudiedModel
from robustassay.studies.su2018.settings import TARGET_RULES, GoalName, SuAttack, SuSettings
from robustassay.studies.task import ComputeTask, Results
from robustassay.studies.timing import Passes
from robustassay.threat import L2, ThreatModel, labels_of

CLEVER_TASK: Final = "clever"
TRANSFER_TASK: Final = "transfer"
"""What the keys of tasks that are no attack runs start with."""


@final
@dataclass(frozen=True, eq=False)
class SuExperiment:
    """The models, the settings and the images."""

    models: tuple[StudiedModel, ...]
    settings: SuSettings
    workspace: Workspace = field(repr=False)

    @cached_property
    def loaded(self) -> dict[str, LoadedModel]:
        """The models, loaded."""
        classes, device = len(self.workspace.dataset.classes), choose_device(self.workspace.device)
        return {model.name: LoadedModel.of(model.name, model.name, classes, device) for model in self.models}

    def models_with_depth(self) -> tuple[StudiedModel, ...]:
        """Return the models with their depths, counted in the same way for all."""
        return tuple(replace(model, depth=self._depth(model.name) or model.depth) for model in self.models)

    def _depth(self, name: str) -> int | None:
        target, image = self.loaded[name].target, as_seen_by(name, self.workspace.dataset).images(slice(0, 1))
        return depth(target.module, image.to(target.device))

    # ---------------------------------------------------------------- CLEVER

    def clever_tasks(self) -> list[ComputeTask]:
        """List one task per model and chunk of images, the first images of all models first."""
        size = self.settings.clever_chunk
        wanted = min(self.settings.clever_images, len(self.workspace.dataset))
        return [
            self._clever_task(model, start, self.workspace.dataset.select(range(start, min(start + size, wanted))))
            for start in range(0, wanted, size)
            for model in self.models
        ]

    def _clever_task(self, model: StudiedModel, start: int, chunk: Dataset) -> ComputeTask:
        clever = self._clever
        how = [clever.norm.identity, clever.batches, clever.samples, clever.aims, clever.seed]
        aims = len(clever.aims)
        points = clever.gradients * (1 if aims == 1 else (2 + aims) / 2)  # a Jacobian shares its forward pass
        depends_on = [self.loaded[model.name].identity, self.workspace.dataset.sha256, list(chunk.ids), how]
        return ComputeTask.of_table(
            name=(CLEVER_TASK, model.name, str(start)),
            title=f"{model.label}, CLEVER",
            samples=len(chunk),
            table=self._table("clever", depends_on),
            make=lambda _: self._estimate_clever(model, chunk),
            seconds=lambda: len(chunk) * self.workspace.seconds(model.name, Passes(gradients=round(points))),
            independent=True,
        )

    @property
    def _clever(self) -> Clever:
        settings = self.settings
        norm = L2(settings.clever_radius)
        points = settings.clever_batches, settings.clever_samples
        return Clever(norm, *points, settings.clever_goals, self.workspace.seed)

    def _estimate_clever(self, model: StudiedModel, chunk: Dataset) -> pd.DataFrame:
        """Estimate for the images that the model classifies correctly."""
        target = self.loaded[model.name].target
        x = as_seen_by(model.name, chunk).images(slice(None)).to(target.device)
        correct = labels_of(target.mean_logits(x)).cpu() == chunk.labels
        known = [sample for sample, ok in zip(chunk.ids, correct.tolist(), strict=True) if ok]
        if not known:
            return pd.DataFrame({"sample_id": pd.Series(dtype=str), "aim": pd.Series(dtype=str)})
        return self._clever(target, x[correct.to(x.device)], known)

    # ---------------------------------------------------------------- transfer

    def transfer_tasks(self) -> list[tuple[GoalName, SuAttack, ComputeTask]]:
        """List one task per goal, attack and source model."""
        return [
            (goal, attack, self._transfer_task(goal, attack, source))
            for goal in self.settings.transfer_goals
            for attack in self.settings.transferred()
            for source in self.models
            if self.settings.meets(source.name.removeprefix(IMAGENET), goal, attack)
        ]

    def _transfer_task(self, goal: GoalName, attack: SuAttack, source: StudiedModel) -> ComputeTask:
        images = self._images(goal, attack)
        models = [[name, model.identity] for name, model in self.loaded.items()]
        how = [goal, attack.attack, attack.norm.identity, self.workspace.seed]
        depends_on = [source.name, models, self.workspace.dataset.sha256, list(images.ids), how]
        return ComputeTask.of_table(
            name=(TRANSFER_TASK, source.name, goal, attack.name),
            title=f"{source.label}, {attack.name} to all models, {goal}",
            samples=len(images),
            table=self._table("transfer", depends_on),
            make=lambda results: self.transfer(goal, attack, source, results),
            seconds=self._transfer_seconds(attack, source, len(images)),
            independent=True,
            reads=((source.name, goal, attack.name),) if self._reads_images(attack) else (),
        )

    def _transfer_seconds(self, attack: SuAttack, source: StudiedModel, images: int) -> Callable[[], float]:
        def seconds() -> float:
            crafting = Passes(gradients=0 if self._reads_images(attack) else attack.gradients)
            shown = sum(self.workspace.seconds(model.name, Passes(forwards=1)) for model in self.models)
            return images * (shown + self.workspace.seconds(source.name, crafting))

        return seconds

    def _reads_images(self, attack: SuAttack) -> bool:
        return attack.keeps_images and self.settings.shown_images is None

    def _images(self, goal: GoalName, attack: SuAttack) -> Dataset:
        dataset, limit = self.workspace.dataset, self.settings.transfer_limit(goal, attack)
        return dataset if limit is None else dataset.take(min(limit, len(dataset)))

    def transfer(self, goal: GoalName, attack: SuAttack, source: StudiedModel, results: Results) -> pd.DataFrame:
        """Test the examples of one source on every model.

        The examples of C&W and EAD are those of their runs, or of a run on fewer images; others are crafted to the last
        step.
        """
        samples = as_seen_by(source.name, self._images(goal, attack))
        if self._reads_images(attack):
            found = Examples.of_result(results[source.name, goal, attack.name], samples)
        elif attack.keeps_images:
            run = replace(attack_run(source, goal, attack, self.settings), keep_images=True)
            apart = replace(self.workspace, dataset=self._images(goal, attack), out=self.workspace.out / "shown")
            found = Examples.of_result(RunTask(run, apart).run({}, NoProgress()), samples)
        else:
            found = self._craft(goal, attack, source, samples)
        modules = {name: model.target.module for name, model in self.loaded.items()}
        return transfer_outcomes(
            {source.name: found}, modules, sizes=self.input_sizes, device=self.workspace.device, known=self.clean_logits
        )

    def _craft(self, goal: GoalName, attack: SuAttack, source: StudiedModel, samples: Dataset) -> Examples:
        threat = ThreatModel(attack.norm, TARGET_RULES[goal])
        created, models = attacks.create(attack.attack), (self.loaded[source.name],)
        crafting = Crafting(source.name, models, created, threat, samples, self.workspace.seed)
        return crafting.examples(self.workspace.out / "examples" / crafting.spec.key, NoProgress())

    @cached_property
    def clean_logits(self) -> CleanLogits:
        """Logits of clean images, which most attacks and sources share."""
        return {}

    @cached_property
    def input_sizes(self) -> dict[str, tuple[int, int]]:
        """Height and width of each model's input."""
        first = {name: as_seen_by(name, self.workspace.dataset).images(slice(0, 1)) for name in self.loaded}
        return {name: (image.shape[-2], image.shape[-1]) for name, image in first.items()}

    def _table(self, name: str, depends_on: object) -> CachedTable:
        return CachedTable(self.workspace.out / "cache", name, depends_on)


def attack_run(model: StudiedModel, goal: GoalName, attack: SuAttack, settings: SuSettings) -> AttackRun:
    """Declare the run of one attack on one model."""
    return AttackRun(
        key=(model.name, goal, attack.name),
        model=model.name,
        threat=ThreatModel(attack.norm, TARGET_RULES[goal]),
        attack=attack.attack,
        passes=Passes(gradients=attack.gradients),
        smallest_eps=attack.smallest_eps,
        keep_images=attack.keeps_images and goal in settings.transfer_goals and settings.shown_images is None,
        limit=settings.limit(attack),
    )
