"""Which models, datasets and attack a set of analyses is about, and the tasks that measure them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, final

import pandas as pd
import torch

from robustassay import attacks, models
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.evaluation.checks import check_model
from robustassay.evaluation.model_ref import choose_device
from robustassay.names import slug
from robustassay.rng import seeded
from robustassay.studies.analyses.adversarial import (
    AdversarialPredictionsTask,
    CraftingSetup,
    TransferTask,
    label_table,
    prediction_table,
)
from robustassay.studies.analyses.model_measurements import SHIFT, TEST, ModelMeasurements, key
from robustassay.studies.cache import CachedTable
from robustassay.studies.measures.smoothness import LipschitzEstimate
from robustassay.studies.photographs import as_seen_by
from robustassay.studies.runs import AttackRun, RunTask, Workspace
from robustassay.studies.study import Plan
from robustassay.studies.task import ComputeTask, Key, Results, Task
from robustassay.studies.timing import EMBEDDED_KEPT, EOT_DRAWS, Passes, load_once
from robustassay.target import LocalModel, TargetModel
from robustassay.threat import LInf, ThreatModel

CHUNK = 256
"""Images that are read together."""


@final
@dataclass(frozen=True, eq=False)
class AnalysisSetup:
    """What is measured, and where it is stored."""

    models: tuple[str, ...]
    datasets: Mapping[str, Dataset] = field(repr=False)  # the TEST images, and what analyses need beside them
    out: Path
    threat: ThreatModel = field(default_factory=lambda: ThreatModel(LInf(8 / 255)))
    attack: str = "pgd"
    passes: Passes | None = None  # of the attack; guessed from its steps by default
    robust_images: int | None = None  # fewer than there are, for a slow attack
    limits: Mapping[str, int] = field(default_factory=dict)  # the same for single models
    lipschitz_images: int = 16
    lipschitz_steps: int = 50
    lipschitz_stages: int = 4
    crafting_attack: str = "pgd:steps=10,rel_step=0.25"  # makes the images of adversarial predictions and of transfer
    crafting_images: int | None = None  # fewer than there are
    seed: int = 0
    device: str | None = None

    @cached_property
    def workspace(self) -> Workspace:
        """The test images and the folder."""
        return Workspace(self.datasets[TEST], self.out, self.seed, self.device)

    def plan(self, keys: Iterable[Key]) -> Plan[ModelMeasurements]:
        """Plan some measurements, model by model, each once."""
        wanted = sorted(dict.fromkeys(keys), key=lambda wanted: self.models.index(wanted[0]))
        return Plan(tuple(self.task(each) for each in wanted), self._measurements)

    def _measurements(self, results: Results) -> ModelMeasurements:
        return ModelMeasurements(self.models, self.datasets, self.threat, results)

    def task(self, measurement: Key) -> Task:
        """Return the task of one measurement."""
        model, kind, data = measurement
        if kind == "run":
            return self.run_task(model, data)
        if kind == "adversarial predictions":
            return AdversarialPredictionsTask(self.crafting(measurement), measurement)
        if kind == "transfer":
            return TransferTask(self.crafting(measurement), measurement, self.models)
        title = f"{model}, {kind}, {self.datasets[data].name}"
        if kind == "lipschitz":
            return ComputeTask.of_table(
                measurement,
                title,
                1,
                self._lipschitz_table(measurement),
                lambda _: self.estimate_lipschitz(measurement),
                lambda: self._lipschitz_seconds(measurement),
                independent=True,
            )
        how = ["labels"] if data.startswith(SHIFT) else []
        table = self._table(measurement, self.data(measurement), how)
        return ComputeTask.of_table(
            measurement,
            title,
            1,
            table,
            lambda _: self.predict(measurement),
            lambda: self.seconds(measurement, Passes(forwards=1)),
            independent=True,
        )

    def run_task(self, model: str, data: str = TEST) -> RunTask:
        """Return the attack run of one model."""
        attack = attacks.create(self.attack)
        guessed = attack.planned_steps or 100
        passes = self.passes or Passes(2, guessed)
        limit = self.limits.get(model, self.robust_images) if data == TEST else None
        name = key("run", model, data)
        run = AttackRun(name, model, self.threat, self.attack, passes, limit=limit, whole_on_gpu=True)
        return RunTask(run, replace(self.workspace, dataset=self.datasets[data]))

    def crafting(self, measurement: Key) -> CraftingSetup:
        """Return what crafts adversarial examples of a measurement, on its first images."""
        model, _, data = measurement
        few = self.datasets[data].take(min(self.crafting_images or len(self.datasets[data]), len(self.datasets[data])))
        return CraftingSetup(model, few, self.workspace, self.threat, self.crafting_attack, self.target)

    # ---------------------------------------------------------------- measuring

    def predict(self, measurement: Key) -> pd.DataFrame:
        """Query a model on a dataset; of shifts, which are many, only the predicted labels are kept."""
        dataset, target = self.data(measurement), self.target(measurement[0])
        chunks = (dataset.images(slice(at, at + CHUNK)) for at in range(0, len(dataset), CHUNK))
        with seeded(f"answers/{self.seed}", target.device):
            logits = torch.cat([target.mean_logits(x.to(target.device)).cpu() for x in chunks])
        return (label_table if measurement[2].startswith(SHIFT) else prediction_table)(dataset, logits)

    def estimate_lipschitz(self, measurement: Key) -> pd.DataFrame:
        """Estimate local Lipschitz constants at some stages of a model."""
        target, few = self.target(measurement[0]), self._few(measurement)
        x = few.images(slice(None)).to(target.device)
        with seeded(f"slopes/{self.seed}", target.device):
            return self._lipschitz.stages(target, x, few.ids, self.lipschitz_stages)

    # ---------------------------------------------------------------- what measurements depend on

    def data(self, measurement: Key) -> Dataset:
        """Return the dataset of a measurement, as the model sees it."""
        return as_seen_by(measurement[0], self.datasets[measurement[2]])

    def target(self, model: str) -> TargetModel:
        """Return a model as it is queried; a randomized one is averaged."""
        return _embedded_target(self, model) if model in models.names() else _target(self, model)

    def seconds(self, measurement: Key, passes: Passes) -> float:
        """Estimate the seconds of some passes per image of a dataset."""
        return len(self.datasets[measurement[2]]) * self.workspace.seconds(measurement[0], passes)

    def _lipschitz_seconds(self, measurement: Key) -> float:
        # An early stage costs less than the whole model; half of it on average.
        passes = Passes(gradients=self.lipschitz_steps * (self.lipschitz_stages + 1))
        return len(self._few(measurement)) * self.workspace.seconds(measurement[0], passes)

    def _lipschitz_table(self, measurement: Key) -> CachedTable:
        estimate = self._lipschitz
        how = [str(estimate.norm), estimate.steps, estimate.rel_step, estimate.restarts, self.lipschitz_stages]
        return self._table(measurement, self._few(measurement), how)

    def _table(self, measurement: Key, dataset: Dataset, how: list[Any]) -> CachedTable:
        depends_on = [dict(load_once(measurement[0]).identity), dataset.sha256, list(dataset.ids), self.seed, how]
        return CachedTable(self.out / "cache", f"{measurement[1]}-{slug(measurement[0])}", depends_on)

    def _few(self, measurement: Key) -> Dataset:
        dataset = self.data(measurement)
        return dataset.take(min(self.lipschitz_images, len(dataset)))

    @property
    def _lipschitz(self) -> LipschitzEstimate:
        return LipschitzEstimate(self.threat.norm, self.lipschitz_steps, seed=self.seed)


@lru_cache(maxsize=EMBEDDED_KEPT)
def _embedded_target(setup: AnalysisSetup, model: str) -> TargetModel:
    """Keep more of the small models of the zoo: in transfer, the examples of each go to all."""
    return _target(setup, model)


@lru_cache(maxsize=2)
def _target(setup: AnalysisSetup, model: str) -> TargetModel:
    """Load and check a model once for all its measurements, which run one after the other."""
    ref = load_once(model)
    if ref.is_remote:
        raise BadRequest(f"{model} is a service, which costs queries: name a local model.")
    device = choose_device(setup.device)
    traits = check_model(ref.module, as_seen_by(model, setup.datasets[TEST]), device, despite_flags=True)
    draws = EOT_DRAWS if traits.random else 1
    return LocalModel(ref.module, traits.classes, device, None, draws, traits.random)
