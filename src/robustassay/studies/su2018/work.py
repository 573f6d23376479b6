"""Does the study's work, each piece once: attacks, CLEVER, and examples shown to every model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, final

import pandas as pd

from robustassay import attacks
from robustassay.data import Dataset
from robustassay.errors import Interrupted
from robustassay.evaluation import Result
from robustassay.evaluation.interrupt import StopRequest, graceful_interrupt
from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.progress import NoProgress, Progress
from robustassay.studies.cache import TableCache
from robustassay.studies.crafting import Crafting, LoadedModel
from robustassay.studies.measures.clever import Clever
from robustassay.studies.measures.transfer_matrix import Examples, meet
from robustassay.studies.photographs import pixels, seen
from robustassay.studies.study import Cell, Passes, Study
from robustassay.studies.su2018.bench import Bench
from robustassay.studies.su2018.plan import RULES, Column, GoalName, Model, Scale, cells
from robustassay.threat import L2, LInf, ThreatModel, labels_of

CHUNK: Final = 8
"""Images whose CLEVER estimates are made, and kept, together."""

AIMS: Final = ("random", "least-likely")


@final
@dataclass(frozen=True)
class Piece:
    """A table to be made: what kind, from what, what to call it, and how many images it is about."""

    kind: str
    told: object
    title: str
    images: int


@final
@dataclass(frozen=True, eq=False)
class Work:
    """What is to be done."""

    models: tuple[Model, ...]
    dataset: Dataset = field(repr=False)
    scale: Scale
    out: Path
    seed: int = 0
    device: str | None = None

    @cached_property
    def study(self) -> Study:
        """The runs of the attacks."""
        return Study(cells(self.models, self.scale), self.dataset, self.out / "runs", self.seed, self.device)

    @cached_property
    def members(self) -> dict[str, LoadedModel]:
        """The models, loaded."""
        classes, device = len(self.dataset.classes), choose_device(self.device)
        return {model.name: LoadedModel.of(model.name, model.name, classes, device) for model in self.models}

    @property
    def pieces(self) -> int:
        """How many pieces of work there are, finished or not."""
        return len(self.study.cells) + len(list(self._chunks())) + len(list(self._transfers()))

    def estimate(self) -> float:
        """Return about how many seconds are left at most."""
        left = self.study.estimate()
        for model, chunk in self._chunks():
            if not self._cache.holds("clever", self._told_clever(model, chunk)):
                points = self._clever.gradients * (1 + len(AIMS)) / 2  # a Jacobian shares its forward pass
                left += len(chunk) * self._seconds(model, Passes(gradients=round(points)))
        for goal, column, source in self._transfers():
            if not self._cache.holds("transfer", self._told_transfer(goal, column, source)):
                own = Passes(gradients=0 if column.transfers else column.gradients)
                looks = sum(self._seconds(model, Passes(forwards=1)) for model in self.models)
                left += len(self._images(column)) * (looks + self._seconds(source, own))
        return left

    def run(self, progress: Progress) -> Bench:
        """Do what is missing and return all that is known."""
        results = {cell.place: result for cell, result in self.study.run(progress)}
        with graceful_interrupt() as stop:
            slopes: dict[str, list[pd.DataFrame]] = {model.name: [] for model in self.models}
            for model, chunk in self._chunks():
                piece = Piece("clever", self._told_clever(model, chunk), f"{model.label}, CLEVER", len(chunk))
                slopes[model.name].append(self._do(piece, self._look_at(model, chunk), progress, stop))
            outcomes: dict[tuple[GoalName, str], list[pd.DataFrame]] = {}
            for goal, column, source in self._transfers():
                make = self._show(goal, column, source, results)
                told, title = self._told_transfer(goal, column, source), f"{source.label}, {column.name} to all, {goal}"
                piece = Piece("transfer", told, title, len(self._images(column)))
                outcomes.setdefault((goal, column.name), []).append(self._do(piece, make, progress, stop))
        return Bench(
            models=self.models,
            scale=self.scale,
            results=results,
            slopes={name: pd.concat(found, ignore_index=True) for name, found in slopes.items() if found},
            outcomes={way: pd.concat(found, ignore_index=True) for way, found in outcomes.items()},
            pixels={model.name: pixels(model.name, self.dataset) for model in self.models},
        )

    def _do(
        self, piece: Piece, make: Callable[[], pd.DataFrame], progress: Progress, stop: StopRequest
    ) -> pd.DataFrame:
        """Read a piece of work, or do it, unless it is time to stop."""
        if stop.asked:
            raise Interrupted("Stopped between two pieces of work: run the same command again to resume.")
        progress.start(piece.title, piece.images, piece.images * self._cache.holds(piece.kind, piece.told))
        try:
            return self._cache.frame(piece.kind, piece.told, make)
        finally:
            progress.finish()

    # ---------------------------------------------------------------- CLEVER

    @property
    def _clever(self) -> Clever:
        return Clever(
            L2(self.scale.clever_radius), self.scale.clever_batches, self.scale.clever_samples, AIMS, self.seed
        )

    def _chunks(self) -> Iterator[tuple[Model, Dataset]]:
        wanted = min(self.scale.clever_images, len(self.dataset))
        for model in self.models:
            for start in range(0, wanted, CHUNK):
                yield model, self.dataset.select(range(start, min(start + CHUNK, wanted)))

    def _told_clever(self, model: Model, chunk: Dataset) -> object:
        asked = self._clever
        how = [str(asked.norm), asked.batches, asked.samples, asked.aims, asked.seed]
        return [self.members[model.name].identity, self.dataset.sha256, list(chunk.ids), how]

    def _look_at(self, model: Model, chunk: Dataset) -> Callable[[], pd.DataFrame]:
        def make() -> pd.DataFrame:
            network = self.members[model.name].network
            x = seen(model.name, chunk).images(slice(None)).to(network.device)
            right = labels_of(network.mean_logits(x)).cpu() == chunk.labels
            known = [sample for sample, ok in zip(chunk.ids, right.tolist(), strict=True) if ok]
            if not known:
                return pd.DataFrame({"sample_id": pd.Series(dtype=str), "aim": pd.Series(dtype=str)})
            return self._clever(network, x[right.to(x.device)], known)

        return make

    # ---------------------------------------------------------------- transfer

    def _transfers(self) -> Iterator[tuple[GoalName, Column, Model]]:
        for goal in self.scale.transfer_goals:
            for column in self.scale.ways():
                for source in self.models:
                    yield goal, column, source

    def _images(self, column: Column) -> Dataset:
        limit = None if isinstance(column.norm, LInf) else self.scale.minimum_images
        return self.dataset if limit is None else self.dataset.take(min(limit, len(self.dataset)))

    def _told_transfer(self, goal: GoalName, column: Column, source: Model) -> object:
        everyone = [[name, member.identity] for name, member in self.members.items()]
        how = [goal, column.attack, str(column.norm), self.seed]
        return [source.name, everyone, self.dataset.sha256, list(self._images(column).ids), how]

    def _show(
        self, goal: GoalName, column: Column, source: Model, results: dict[tuple[str, ...], Result]
    ) -> Callable[[], pd.DataFrame]:
        """Take the examples of a run that seeks the minimum, or make them to the last step, and show them to all."""

        def make() -> pd.DataFrame:
            samples = seen(source.name, self._images(column))
            if column.transfers:
                found = Examples.of_result(results[source.name, goal, column.name], samples)
            else:
                threat = ThreatModel(column.norm, RULES[goal])
                attack = attacks.create(column.attack)
                crafting = Crafting(source.name, (self.members[source.name],), attack, threat, samples, self.seed)
                folder = self.out / "examples" / crafting.spec.key
                found = crafting.examples(folder, NoProgress())
            targets = {name: member.network.module for name, member in self.members.items()}
            return meet({source.name: found}, targets, sizes=self._sizes, device=self.device)

        return make

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, int]]:
        """Height and width of the images that each model sees."""
        first = {name: seen(name, self.dataset).images(slice(0, 1)) for name in self.members}
        return {name: (image.shape[-2], image.shape[-1]) for name, image in first.items()}

    @property
    def _cache(self) -> TableCache:
        return TableCache(self.out / "work")

    def _seconds(self, model: Model, passes: Passes) -> float:
        cell = Cell(("",), model.name, ThreatModel(self._clever.norm), "", passes)
        return self.study.seconds_a_sample(cell)
