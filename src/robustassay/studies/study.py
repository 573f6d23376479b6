"""What every study shares: its runs as data, what they will cost, and a loop that does only what is missing."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, final

import torch
from torch import Tensor

from robustassay import models
from robustassay.data import Dataset
from robustassay.data.photo_frames import photo_reader_of
from robustassay.errors import Interrupted
from robustassay.evaluation import Execution, Result, Search, evaluate
from robustassay.evaluation.interrupt import graceful_interrupt
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.options import default_wave_size
from robustassay.evaluation.progress import Progress
from robustassay.models.from_file import is_file_spec
from robustassay.models.sources import is_source_spec
from robustassay.names import slug
from robustassay.store import Store
from robustassay.studies.photographs import entry_of, seen
from robustassay.target import LocalModel
from robustassay.threat import ThreatModel, Untargeted

DRAWS: Final = 20
"""Passes that a gradient of a random model is averaged over."""

_TIMED: Final = 16
"""Images whose passes are timed before a study starts."""

_OPENING: Final = 100, 50
"""Images that are sent through a model, forward and for gradients, when it is looked at before a run."""

_SECONDS_A_WAVE: Final = 600
"""An interrupt loses what is in flight, so a wave of slow samples holds fewer of them."""


@final
@dataclass(frozen=True)
class Passes:
    """What a run means to send through networks for one sample; samples that fall early take less."""

    forwards: int = 0
    gradients: int = 0
    on_source: int = 0  # gradients of the substitute of a transfer attack


@final
@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    place: tuple[str, ...]  # where the study looks its result up: the row first, then whatever tells its runs apart
    model: str
    threat: ThreatModel
    attack: str
    plan: Passes
    smallest_eps: bool = False
    query_budget: int | None = None
    limit: int | None = None  # fewer samples than the study has, for runs that cost much
    source: str | None = None
    keep_images: bool = False

    def folder(self, seed: int) -> Path:
        """Where the run lives inside the study's folder; other settings or weights make it another run's place."""
        rule, weights = self.threat.target, [_weights(self.model), _weights(self.source or "")]
        told: list[object] = [self.model, weights, str(self.threat.norm), rule and rule.identity, self.attack]
        told += [self.smallest_eps, self.query_budget, seed]
        tag = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:8]
        *rooms, last = (slug(part.lower(), keep="_.-") for part in self.place)
        return Path(*rooms) / f"{last}-{tag}"

    def samples(self, dataset: Dataset) -> Dataset:
        """Return the samples that the run is about, as the model sees them."""
        chosen = dataset if self.limit is None else dataset.take(min(self.limit, len(dataset)))
        return seen(self.model, chosen)


@final
@dataclass(frozen=True)
class Speed:
    """Seconds that one image takes through a network, with and without its gradient."""

    forward: float
    gradient: float


@final
@dataclass(frozen=True)
class Study:
    """Runs on one dataset, kept in one folder."""

    cells: tuple[Cell, ...]
    dataset: Dataset = field(repr=False)
    out: Path
    seed: int = 0
    device: str | None = None

    def missing(self, cell: Cell) -> int:
        """Count the samples of a run that have no record yet."""
        store = Store(self.out / cell.folder(self.seed))
        done = store.done(with_images=cell.keep_images) if store.exists() else frozenset()
        return sum(sample not in done for sample in cell.samples(self.dataset).ids)

    def estimate(self) -> float:
        """Return about how many seconds are left at most: planned passes times what a pass takes here and now."""
        todo = [(cell, missing) for cell in self.cells if (missing := self.missing(cell))]
        opened = {(cell.model, cell.limit): cell for cell, _ in todo}
        looks = sum(self._seconds(cell, *_OPENING) for cell in opened.values())
        return looks + sum(missing * self.seconds_a_sample(cell) for cell, missing in todo)

    def seconds_a_sample(self, cell: Cell) -> float:
        """Return about what one sample of a run takes at most."""
        source = replace(cell, model=cell.source) if cell.source else cell
        return self._seconds(cell, cell.plan.forwards, cell.plan.gradients) + self._seconds(
            source, 0, cell.plan.on_source
        )

    def _seconds(self, cell: Cell, forwards: int, gradients: int) -> float:
        speed = _speed(cell.model, self.dataset, choose_device(self.device))
        return forwards * speed.forward + gradients * speed.gradient

    def run(self, progress: Progress) -> Iterator[tuple[Cell, Result]]:
        """Run each cell, or what is missing of it; one that is finished is only read."""
        for cell in self.cells:
            with graceful_interrupt() as stop:
                result = self.result(cell, progress)
            yield cell, result
            if stop.asked:
                raise Interrupted("Stopped between two runs: run the same command again to resume.")

    def result(self, cell: Cell, progress: Progress) -> Result:
        """Run one cell, or what is missing of it; or only read it."""
        return self._read(cell, progress) or self._run(cell, progress)

    def _read(self, cell: Cell, progress: Progress) -> Result | None:
        """Read a finished run, if it is one of the very model and data that are here now."""
        store = Store(self.out / cell.folder(self.seed))
        if self.missing(cell):
            return None
        spec, held = store.manifest()["spec"], _subject(cell.model).identity
        samples = cell.samples(self.dataset)
        if spec["data"]["sha256"] != samples.sha256 or any(spec["model"].get(key) != held[key] for key in held):
            return None  # evaluate says what is wrong
        progress.start(str(store.manifest()["title"]), len(samples), len(samples))
        progress.finish()
        return Result.of_store(store, list(samples.ids))

    def _run(self, cell: Cell, progress: Progress) -> Result:
        device, samples = choose_device(self.device), cell.samples(self.dataset)
        in_time = int(_SECONDS_A_WAVE / max(self.seconds_a_sample(cell), 1e-9))
        return evaluate(
            _subject(cell.model),
            samples,
            cell.threat,
            cell.attack,
            seed=self.seed,
            device=device,
            search=Search(query_budget=cell.query_budget, eot=DRAWS, smallest_eps=cell.smallest_eps),
            execution=Execution(wave_size=min(default_wave_size(device, samples), max(8, in_time))),
            out=self.out / cell.folder(self.seed),
            keep_images=cell.keep_images,
            progress=progress,
        )


def in_zoo(model: str) -> bool:
    """Say whether a model, behind whatever defenses, can be loaded here."""
    inner = model.rpartition("|")[2].strip()
    return is_file_spec(inner) or is_source_spec(inner) or inner in models.names()


def spoken(seconds: float) -> str:
    """Say a time as people do."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def time_left(seconds: float) -> str:
    """Say before a study starts how long it will take."""
    return f"about {spoken(seconds)} at most here, less where samples fall early" if seconds else "all of them finished"


def listed(names: Sequence[str]) -> str:
    """Write a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _weights(model: str) -> str:
    """Name the weights behind a zoo name, so that a model trained anew does not meet the runs of the old one."""
    inner = model.rpartition("|")[2].strip()
    entry = entry_of(inner)
    return models.card(inner).sha256 if inner in models.names() else entry.sha256 if entry else ""


@lru_cache(maxsize=2)
def _subject(model: str) -> ModelRef:
    """Load a model once, to be timed and to tell whether finished runs are its own."""
    return ModelRef.of(model)


def _timed(dataset: Dataset, device: torch.device) -> int:
    """Return how many images to time: a GPU is as quick with few as with one, and large images take longer."""
    return 4 * _TIMED if device.type == "cuda" else _TIMED if photo_reader_of(dataset) is None else _TIMED // 2


@lru_cache(maxsize=64)
def _speed(model: str, dataset: Dataset, device: torch.device) -> Speed:
    """Time a few passes of a model, once."""
    dataset = seen(model, dataset)
    rows = slice(0, min(_timed(dataset, device), len(dataset)))
    x, goal = dataset.images(rows).to(device), Untargeted(dataset.labels[rows].to(device))
    module = _subject(model).module.to(device)
    with torch.no_grad():
        first, second = module(x), module(x)
    draws = 1 if torch.allclose(first, second, rtol=1e-3, atol=1e-3) else DRAWS
    network = LocalModel(module, first.shape[1], device, draws=draws)
    asks = (network.logits, lambda x: network.gradient(x, lambda logits, _: logits[:, 0], goal))
    return Speed(*(_time(ask, x) / len(x) for ask in asks))


def _time(ask: Callable[[Tensor], object], x: Tensor) -> float:
    """Time a pass; on a GPU the second one, as the first has kernels to choose and load."""
    on_gpu = x.device.type == "cuda"
    for _ in range(1 + on_gpu):
        start = time.perf_counter()
        ask(x)
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return seconds
