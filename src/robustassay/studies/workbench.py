"""What analyses of a set of models are made of: answers, runs, adversarial answers and slopes, each computed once.

Every piece is kept under what it depends on, so that the same request resumes and a larger one adds what is missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from robustassay import attacks, models
from robustassay.analysis.rates import Rate, robust_accuracy
from robustassay.data import Dataset
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation import Result
from robustassay.evaluation.checks import check_model
from robustassay.evaluation.interrupt import graceful_interrupt
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.progress import Progress
from robustassay.models.card import ModelCard
from robustassay.names import slug
from robustassay.registry import describe
from robustassay.rng import seeded
from robustassay.studies.cache import TableCache
from robustassay.studies.crafting import Crafting, LoadedModel
from robustassay.studies.measures.smoothness import Smoothness
from robustassay.studies.photographs import seen
from robustassay.studies.study import DRAWS, Cell, Passes, Study
from robustassay.target import LocalModel, TargetModel
from robustassay.threat import LInf, ThreatModel

TEST: Final = "test"
MEMBERS: Final = "training images"
SHIFT, OUTSIDE = "shift: ", "outside: "
"""What the names of other datasets begin with."""

CHUNK: Final = 256
"""Images that are read together."""

Kind = Literal["answers", "runs", "adversarial", "slopes"]
Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Need:
    """One piece of work: a kind, of one model, on one of the datasets."""

    kind: Kind
    model: str
    data: str = TEST


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says of images."""

    logits: Numbers = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Which answers are right."""
        right: npt.NDArray[np.bool_] = self.logits.argmax(1) == self.labels
        return right

    @property
    def own(self) -> Numbers:
        """The probability of each image's true label."""
        from scipy.special import softmax

        chances: Numbers = softmax(self.logits, axis=1)[np.arange(len(self.labels)), self.labels]
        return chances


@final
@dataclass(frozen=True, eq=False)
class Bench:
    """The finished pieces."""

    models: tuple[str, ...]
    datasets: Mapping[str, Dataset] = field(repr=False)
    threat: ThreatModel
    pieces: Mapping[Need, pd.DataFrame] = field(repr=False)
    results: Mapping[str, Result] = field(repr=False)

    def answers(self, model: str, data: str = TEST, kind: Kind = "answers") -> Answers:
        """Return what a model says of a dataset, or of its images after an attack."""
        frame = self.pieces[Need(kind, model, data)]
        columns = [name for name in frame if str(name).startswith("logit")]
        return Answers(frame[columns].to_numpy(np.float64), frame["label"].to_numpy(np.int64))

    def records(self, model: str) -> pd.DataFrame:
        """Return the records of the attack on a model."""
        return self.results[model].records

    def robust(self, model: str) -> Rate:
        """Return a model's robust accuracy."""
        return robust_accuracy(self.records(model))

    def named(self, start: str) -> list[str]:
        """Return the datasets of one sort."""
        return [name for name in self.datasets if name.startswith(start)]


@final
@dataclass(frozen=True, eq=False)
class Workbench:
    """What is to be looked at, and where the pieces are kept."""

    models: tuple[str, ...]
    datasets: Mapping[str, Dataset] = field(repr=False)  # that of TEST, and whatever analyses need more
    out: Path
    threat: ThreatModel = field(default_factory=lambda: ThreatModel(LInf(8 / 255)))
    attack: str = "pgd"
    plan: Passes | None = None  # of the attack; guessed from its steps by default
    robust_images: int | None = None  # fewer than there are, for an attack that takes long
    slope_images: int = 16
    slope_steps: int = 50
    slope_stages: int = 4
    mover: str = "pgd:steps=10,rel_step=0.25"  # makes the adversarial images whose answers are asked for
    seed: int = 0
    device: str | None = None

    @cached_property
    def study(self) -> Study:
        """The attack's runs."""
        cells = tuple(self._cell(model) for model in self.models)
        return Study(cells, self.datasets[TEST], self.out / "runs", self.seed, self.device)

    def folders(self) -> list[Path]:
        """Return where the attack's runs are, these models' alone."""
        return [self.study.out / self._cell(model).folder(self.seed) for model in self.models]

    def estimate(self, needs: Sequence[Need]) -> float:
        """Return about how many seconds these pieces still take at most."""
        return sum(self._seconds(need) for need in needs if not self._has(need))

    def run(self, needs: Sequence[Need], progress: Progress) -> Bench:
        """Do what is missing and return all."""
        pieces: dict[Need, pd.DataFrame] = {}
        results: dict[str, Result] = {}
        with graceful_interrupt() as stop:
            for need in dict.fromkeys(needs):
                if stop.asked:
                    raise Interrupted("Stopped between two pieces of work: run the same command again to resume.")
                if need.kind == "runs":
                    cell = self._cell(need.model)
                    results[need.model] = next(iter(replace(self.study, cells=(cell,)).run(progress)))[1]
                elif need.kind == "adversarial":
                    pieces[need] = self._adversarial(need, progress)
                else:
                    pieces[need] = self._piece(need, progress)
        return Bench(self.models, self.datasets, self.threat, pieces, results)

    # ---------------------------------------------------------------- pieces

    def _piece(self, need: Need, progress: Progress) -> pd.DataFrame:
        name, told = f"{need.kind}-{slug(need.model)}", self._told(need)
        progress.start(f"{need.model}, {need.kind}, {self.datasets[need.data].name}", 1, int(self._has(need)))
        try:
            make = self._slopes if need.kind == "slopes" else self._answers
            return self._cache.frame(name, told, lambda: make(need))
        finally:
            progress.finish()

    def _answers(self, need: Need) -> pd.DataFrame:
        dataset, network = self._data(need), self._network(need.model)
        chunks = (dataset.images(slice(at, at + CHUNK)) for at in range(0, len(dataset), CHUNK))
        with seeded(f"answers/{self.seed}", network.device):
            logits = torch.cat([network.mean_logits(x.to(network.device)).cpu() for x in chunks])
        return _frame(dataset, logits)

    def _adversarial(self, need: Need, progress: Progress) -> pd.DataFrame:
        """Ask about images after all steps of an attack, whether it succeeded or not."""
        dataset, network = self._data(need), self._network(need.model)
        with seeded(f"adversarial/{self.seed}", network.device):
            crafting = self._crafting(need, network)
            examples = crafting.examples(self._moved(need, crafting), progress)
            moved = [network.mean_logits(x.to(network.device)).cpu() for x in torch.split(examples.x_adv, CHUNK)]
        return _frame(dataset, torch.cat(moved))

    def _slopes(self, need: Need) -> pd.DataFrame:
        network, few = self._network(need.model), self._few(need)
        x = few.images(slice(None)).to(network.device)
        with seeded(f"slopes/{self.seed}", network.device):
            return self._smoothness.stages(network, x, few.ids, self.slope_stages)

    # ---------------------------------------------------------------- what they depend on

    def _told(self, need: Need) -> list[Any]:
        dataset = self._few(need) if need.kind == "slopes" else self._data(need)
        how: list[Any] = []
        if need.kind == "slopes":
            asked = self._smoothness
            how = [str(asked.norm), asked.steps, asked.rel_step, asked.restarts, self.slope_stages]
        return [dict(_subject(need.model).identity), dataset.sha256, list(dataset.ids), self.seed, how]

    def _has(self, need: Need) -> bool:
        if need.kind == "runs":
            return not self.study.missing(self._cell(need.model))
        if need.kind == "adversarial":
            crafting = self._crafting(need, self._network(need.model))
            return not crafting.missing(self._moved(need, crafting))
        return self._cache.holds(f"{need.kind}-{slug(need.model)}", self._told(need))

    def _seconds(self, need: Need) -> float:
        images, cell = len(self.datasets[need.data]), self._cell(need.model)
        if need.kind == "answers":
            return images * self.study.seconds_a_sample(replace(cell, plan=Passes(forwards=1)))
        if need.kind == "adversarial":
            steps = int(getattr(attacks.create(self.mover), "steps", 10))
            return images * self.study.seconds_a_sample(replace(cell, plan=Passes(forwards=4, gradients=steps)))
        if need.kind == "slopes":
            passes = Passes(gradients=self.slope_steps * (self.slope_stages + 1))  # a stage half way costs half as much
            return len(self._few(need)) * self.study.seconds_a_sample(replace(cell, plan=passes))
        return replace(self.study, cells=(cell,)).estimate()

    def _cell(self, model: str) -> Cell:
        attack = attacks.create(self.attack)
        guessed = int(getattr(attack, "steps", 100)) * int(getattr(attack, "restarts", 1))
        name = str(describe("attack", attack)["name"])
        return Cell((model, name), model, self.threat, self.attack, self.plan or Passes(2, guessed),
                    limit=self.robust_images)  # fmt: skip

    def _crafting(self, need: Need, network: TargetModel) -> Crafting:
        member = LoadedModel(need.model, network, dict(_subject(need.model).identity))
        dataset = self._data(need)
        return Crafting(need.model, (member,), attacks.create(self.mover), self.threat, dataset, self.seed)

    def _moved(self, need: Need, crafting: Crafting) -> Path:
        name = f"{slug(self.datasets[need.data].name)}-{crafting.spec.key[:8]}"
        return self.out / "examples" / slug(need.model) / name

    def _data(self, need: Need) -> Dataset:
        return seen(need.model, self.datasets[need.data])

    def _few(self, need: Need) -> Dataset:
        dataset = self._data(need)
        return dataset.take(min(self.slope_images, len(dataset)))

    def _network(self, model: str) -> TargetModel:
        model_ref = _subject(model)
        if model_ref.is_remote:
            raise BadRequest(f"{model} is a service, which costs queries: name a model of this process.")
        device = choose_device(self.device)
        traits = check_model(model_ref.module, self._data(Need("answers", model)), device, despite_flags=True)
        draws = DRAWS if traits.random else 1
        return LocalModel(model_ref.module, traits.classes, device, None, draws, traits.random)

    @property
    def _cache(self) -> TableCache:
        return TableCache(self.out / "pieces")

    @property
    def _smoothness(self) -> Smoothness:
        return Smoothness(self.threat.norm, self.slope_steps, seed=self.seed)


def card_of(model: str) -> ModelCard | None:
    """Return the card of an embedded model; None of others, and of defended ones."""
    return models.card(model) if model in models.names() else None


@lru_cache(maxsize=2)
def _subject(model: str) -> ModelRef:
    """Load a model once for all its pieces, which are done one after the other."""
    return ModelRef.of(model)


def _frame(dataset: Dataset, logits: torch.Tensor) -> pd.DataFrame:
    columns = {f"logit{at}": logits[:, at].numpy() for at in range(logits.shape[1])}
    return pd.DataFrame({"sample_id": list(dataset.ids), "label": dataset.labels.numpy(), **columns})
