"""Attack runs as tasks: one attack on one model under one threat, evaluated, stored and resumed."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, final

import torch

from robustassay import models
from robustassay.data import Dataset
from robustassay.evaluation import Execution, Result, Search, evaluate
from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.options import default_wave_size
from robustassay.evaluation.progress import Progress
from robustassay.models.from_file import is_file_spec
from robustassay.models.sources import is_source_spec
from robustassay.names import slug
from robustassay.store import Store
from robustassay.studies.photographs import as_seen_by, entry_of
from robustassay.studies.task import Key, Results, Task, TaskCost
from robustassay.studies.timing import EOT_DRAWS, Passes, load_once, pass_times
from robustassay.threat import ThreatModel

_PREFLIGHT: Final = Passes(forwards=100, gradients=50)
"""Passes that check a model before its first run."""

_SECONDS_PER_WAVE: Final = 600
"""An interrupt loses the wave in progress, so a wave of slow samples holds fewer of them."""

_LEAST_PER_WAVE: Final = {"cuda": 128}
"""Samples that a wave holds at least; a GPU takes as long for a few."""


@final
@dataclass(frozen=True)
class AttackRun:
    """One run that a study declares."""

    key: Key  # the row or model first, then whatever tells its runs apart
    model: str
    threat: ThreatModel
    attack: str
    passes: Passes
    smallest_eps: bool = False
    query_budget: int | None = None
    eot: int = EOT_DRAWS  # draws per gradient of a random model
    limit: int | None = None  # fewer samples than the study has, for costly runs
    source: str | None = None
    keep_images: bool = False
    whole_on_gpu: bool = False  # all samples in one wave there, as a few take as long as many

    def folder(self, seed: int) -> Path:
        """Return the run's place below the folder of runs; other settings or weights give another one."""
        target, weights = self.threat.target, [_weights(self.model), _weights(self.source or "")]
        threat = (self.threat.norm.identity, target and target.identity)
        settings: list[object] = [self.model, weights, *threat, self.attack]
        settings += [self.smallest_eps, self.query_budget, seed, *([self.eot] if self.eot != EOT_DRAWS else [])]
        tag = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
        *parents, last = (slug(part.lower(), keep="_.-") for part in self.key)
        return Path(*parents) / f"{last}-{tag}"


@final
@dataclass(frozen=True)
class Workspace:
    """What all tasks of a study share: images, folder, seed and device."""

    dataset: Dataset = field(repr=False)
    out: Path
    seed: int = 0
    device: str | None = None

    def tasks(self, runs: Iterable[AttackRun]) -> "tuple[RunTask, ...]":
        """Make tasks of runs."""
        return tuple(RunTask(run, self) for run in runs)

    def seconds(self, model: str, passes: Passes, eot: int = EOT_DRAWS) -> float:
        """Estimate the seconds of some passes of a model per sample."""
        times = pass_times(model, self.dataset, choose_device(self.device), eot)
        return passes.forwards * times.forward + passes.gradients * times.gradient


@final
@dataclass(frozen=True)
class RunTask(Task):
    """A task whose result is a `Result` of `evaluate`."""

    attack_run: AttackRun
    workspace: Workspace

    @property
    def key(self) -> Key:
        """Name of the result."""
        return self.attack_run.key

    @property
    def needs(self) -> tuple[Key, ...]:
        """A run reads no results."""
        return ()

    @property
    def folder(self) -> Path:
        """Where the run is stored."""
        return self.workspace.out / "runs" / self.attack_run.folder(self.workspace.seed)

    @property
    def samples(self) -> Dataset:
        """The samples of the run, as the model sees them."""
        run, dataset = self.attack_run, self.workspace.dataset
        chosen = dataset if run.limit is None else dataset.take(min(run.limit, len(dataset)))
        return as_seen_by(run.model, chosen)

    def missing(self) -> int:
        """Count the samples that have no record yet."""
        store = Store(self.folder)
        done = store.done(with_images=self.attack_run.keep_images) if store.exists() else frozenset()
        return sum(sample not in done for sample in self.samples.ids)

    def to_read(self) -> "RunTask":
        """A page needs no images."""
        return replace(self, attack_run=replace(self.attack_run, keep_images=False))

    def cost(self) -> TaskCost:
        """Estimate planned passes times their measured time; the first run of a model checks it, too."""
        missing, run = self.missing(), self.attack_run
        if not missing:
            return TaskCost()
        preflight = self.workspace.seconds(run.model, _PREFLIGHT, run.eot)
        return TaskCost(missing * self.seconds_per_sample(), {(run.model, run.limit): preflight})

    def seconds_per_sample(self) -> float:
        """Estimate the seconds of one sample, at most."""
        run = self.attack_run
        on_source = Passes(gradients=run.passes.source_gradients)
        own = replace(run.passes, source_gradients=0)
        parts = {run.model: own, run.source or run.model: on_source} if run.source else {run.model: own}
        return sum(self.workspace.seconds(model, passes, run.eot) for model, passes in parts.items())

    def run(self, results: Results, progress: Progress) -> Result:
        """Evaluate the missing samples; a finished run is read."""
        return self._read(progress) or self._evaluate(progress)

    def _read(self, progress: Progress) -> Result | None:
        """Read a finished run, if it is one of exactly this model and these data."""
        store = Store(self.folder)
        if self.missing():
            return None
        spec, identity = store.manifest()["spec"], load_once(self.attack_run.model).identity
        samples = self.samples
        if spec["data"]["sha256"] != samples.sha256 or any(spec["model"].get(key) != identity[key] for key in identity):
            return None  # evaluate says what differs
        progress.start(str(store.manifest()["title"]), len(samples), len(samples))
        progress.finish()
        return Result.of_store(store, list(samples.ids))

    def _evaluate(self, progress: Progress) -> Result:
        run, device, samples = self.attack_run, choose_device(self.workspace.device), self.samples
        return evaluate(
            load_once(run.model),
            samples,
            run.threat,
            run.attack,
            seed=self.workspace.seed,
            device=device,
            search=Search(query_budget=run.query_budget, eot=run.eot, smallest_eps=run.smallest_eps, self_test=0),
            execution=Execution(wave_size=self._wave_size(device)),
            out=self.folder,
            keep_images=run.keep_images,
            progress=progress,
        )

    def _wave_size(self, device: torch.device) -> int:
        """Return how many samples are attacked together, at most."""
        most = default_wave_size(device, self.samples)
        if device.type == "cuda" and self.attack_run.whole_on_gpu:
            return most
        return min(
            most,
            max(_LEAST_PER_WAVE.get(device.type, 8), int(_SECONDS_PER_WAVE / max(self.seconds_per_sample(), 1e-9))),
        )


def is_available(model: str) -> bool:
    """Say whether a model, with whatever defenses before it, can be loaded here."""
    inner = model.rpartition("|")[2].strip()
    return is_file_spec(inner) or is_source_spec(inner) or inner in models.names()


def _weights(model: str) -> str:
    """Return the hash of a model's weights, so that a model trained anew does not meet the runs of the old one."""
    inner = model.rpartition("|")[2].strip()
    entry = entry_of(inner)
    return models.card(inner).sha256 if inner in models.names() else entry.sha256 if entry else ""
