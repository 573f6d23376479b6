"""Adversarial examples of one model, and what it and other models answer to them.

The answers are cached tables: the examples themselves may be deleted, or stay on another machine.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import pandas as pd
import torch

from robustassay import attacks, models
from robustassay.data import Dataset
from robustassay.evaluation.progress import Progress
from robustassay.names import slug
from robustassay.rng import seeded
from robustassay.studies.cache import CachedTable
from robustassay.studies.crafting import Crafting, LoadedModel
from robustassay.studies.photographs import as_seen_by
from robustassay.studies.runs import Workspace
from robustassay.studies.task import Key, Results, Task, TaskCost
from robustassay.studies.timing import Passes, load_once
from robustassay.target import TargetModel
from robustassay.threat import ThreatModel

CHUNK = 256
"""Images that are queried together."""


@final
@dataclass(frozen=True, eq=False)
class CraftingSetup:
    """An attack on one model that takes all its steps, whether it succeeds or not."""

    model: str
    dataset: Dataset = field(repr=False)
    workspace: Workspace
    threat: ThreatModel
    attack: str
    target: Callable[[str], TargetModel] = field(repr=False)  # loads a model as it is queried

    def crafting(self) -> Crafting:
        """Load the model and prepare the attack."""
        source = LoadedModel(self.model, self.target(self.model), dict(load_once(self.model).identity))
        data = as_seen_by(self.model, self.dataset)
        return Crafting(self.model, (source,), attacks.create(self.attack), self.threat, data, self.workspace.seed)

    def examples(self, progress: Progress) -> torch.Tensor:
        """Craft what is missing, and return all adversarial images."""
        crafting = self.crafting()
        name = f"{slug(self.dataset.name)}-{crafting.spec.key[:8]}"
        return crafting.examples(self.workspace.out / "examples" / slug(self.model) / name, progress).x_adv

    def logits(self, model: str, x_adv: torch.Tensor) -> torch.Tensor:
        """Query a model."""
        target = self.target(model)
        with seeded(f"adversarial/{self.workspace.seed}", target.device):
            parts = [target.mean_logits(x.to(target.device)).cpu() for x in torch.split(x_adv, CHUNK)]
        return torch.cat(parts)

    def table(self, kind: str, more: list[Any]) -> CachedTable:
        """Return the place of a table that depends on these examples."""
        norm = self.threat.norm
        how = [self.attack, norm.name, norm.eps, self.workspace.seed, *more]
        data = [self.dataset.sha256, list(self.dataset.ids)]
        depends_on = [dict(load_once(self.model).identity), data, how]
        return CachedTable(self.workspace.out / "cache", f"{kind}-{slug(self.model)}", depends_on)

    def seconds(self) -> float:
        """Estimate the attack and the queries."""
        steps = attacks.create(self.attack).planned_steps or 10
        passes = Passes(forwards=4, gradients=steps)
        return len(self.dataset) * self.workspace.seconds(self.model, passes)


@dataclass(frozen=True, eq=False)
class ExamplesTask(Task):
    """A table made of adversarial examples."""

    setup: CraftingSetup = field(repr=False)
    name: Key

    @property
    def key(self) -> Key:
        """Name of the result."""
        return self.name

    @property
    def needs(self) -> tuple[Key, ...]:
        """It crafts its examples itself."""
        return ()

    @property
    @abstractmethod
    def place(self) -> CachedTable:
        """The table."""

    @abstractmethod
    def make(self, x_adv: torch.Tensor) -> pd.DataFrame:
        """Make the table of the examples."""

    @final
    def missing(self) -> int:
        """Return all images, or none."""
        return 0 if self.place.exists() else len(self.setup.dataset)

    @final
    def cost(self) -> TaskCost:
        """Estimate the attack and the queries."""
        return TaskCost(self.setup.seconds() if self.missing() else 0.0)

    @final
    def run(self, results: Results, progress: Progress) -> pd.DataFrame:
        """Craft what is missing and query, or read the table."""
        if not self.missing():
            progress.start(" ".join(self.name), len(self.setup.dataset), len(self.setup.dataset))
            progress.finish()
        return self.place.get(lambda: self.make(self.setup.examples(progress)))


@final
@dataclass(frozen=True, eq=False)
class AdversarialPredictionsTask(ExamplesTask):
    """A model's predictions on its own adversarial examples."""

    @cached_property
    def place(self) -> CachedTable:
        """The table."""
        return self.setup.table("adversarial predictions", [])

    def make(self, x_adv: torch.Tensor) -> pd.DataFrame:
        """Query the model."""
        return prediction_table(self.setup.dataset, self.setup.logits(self.setup.model, x_adv))


@final
@dataclass(frozen=True, eq=False)
class TransferTask(ExamplesTask):
    """What several models answer to the examples of one: target, sample_id, label, predicted."""

    targets: tuple[str, ...]

    @cached_property
    def place(self) -> CachedTable:
        """The table."""
        return self.setup.table("transfer", [[name, _identity(name)] for name in self.targets])

    def make(self, x_adv: torch.Tensor) -> pd.DataFrame:
        """Query all targets."""
        data = self.setup.dataset
        frames = [
            pd.DataFrame(
                {
                    "target": target,
                    "sample_id": list(data.ids),
                    "label": data.labels.numpy(),
                    "predicted": self.setup.logits(target, x_adv).argmax(1).numpy(),
                }
            )
            for target in self.targets
        ]
        return pd.concat(frames, ignore_index=True)


def _identity(model: str) -> Any:
    """Identify a model; the zoo's by the hash on their cards, as loading them all for every source takes long."""
    return models.card(model).sha256 if model in models.names() else dict(load_once(model).identity)


def prediction_table(dataset: Dataset, logits: torch.Tensor) -> pd.DataFrame:
    """Return one row per image: id, label and logits."""
    columns = {f"logit{at}": logits[:, at].numpy() for at in range(logits.shape[1])}
    return pd.DataFrame({"sample_id": list(dataset.ids), "label": dataset.labels.numpy(), **columns})


def label_table(dataset: Dataset, logits: torch.Tensor) -> pd.DataFrame:
    """Return one row per image: id, label and predicted label."""
    columns = {"label": dataset.labels.int().numpy(), "predicted": logits.argmax(1).int().numpy()}
    return pd.DataFrame({"sample_id": list(dataset.ids), **columns})
