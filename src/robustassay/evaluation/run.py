"""Evaluates a model: resolves what was asked for, checks it, runs waves until no sample is missing."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from robustassay import attacks
from robustassay.analysis import rates
from robustassay.attacks.attack import Attack
from robustassay.attacks.nearest.minimum_radius import MinimumRadius
from robustassay.data import Dataset
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation.adaptive import seek_advice
from robustassay.evaluation.arguments import as_dataset, as_list, as_threat, distinct_names
from robustassay.evaluation.backend_choice import choose_backend
from robustassay.evaluation.backends import Backend, Done, Share, Workload
from robustassay.evaluation.defaults import fitting_wave
from robustassay.evaluation.engine import FULL_PRECISION
from robustassay.evaluation.flags import Flag
from robustassay.evaluation.manifest import write_manifest
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.open_target import open_network
from robustassay.evaluation.options import Execution, Precision, Search, whole
from robustassay.evaluation.outcome import Tolerance
from robustassay.evaluation.preflight import check_attack, check_probe, probe
from robustassay.evaluation.progress import NoProgress, Progress, ProgressMeter, StopRequest, graceful_interrupt
from robustassay.evaluation.result import CONFIRMS, Result
from robustassay.evaluation.spec import RunSpec
from robustassay.models.input_frame import as_model_input
from robustassay.registry import describe, name_of, spell
from robustassay.remote import over_the_wire
from robustassay.store import Store
from robustassay.target import TargetModel
from robustassay.threat import Norm, ThreatModel


def evaluate(
    model: nn.Module | str | ModelRef,
    data: Dataset | str | tuple[Any, Any],
    threat: Norm | ThreatModel | str,
    attack: str | Attack[Any] | Sequence[str | Attack[Any]],
    *,
    limit: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    keep_images: bool = True,
    name: str | None = None,
    search: Search = Search(),  # noqa: B008, a frozen value
    execution: Execution = Execution(),  # noqa: B008
    progress: Progress | None = None,
) -> Result:
    """Measure how robust a model is against an attack, or against each of several.

    Args:
        model: a module from [0, 1] images to logits, a zoo name, "path/to/file.py:factory", or a model of another
            library, such as "timm:resnet18"; defenses may precede a name, as in "jpeg:quality=75|resnet56-natural".
            A `ModelRef` is inspected once for several runs.
        data: a dataset, its name or path, or a pair of images and labels.
        threat: such as `LInf(8 / 255)`, a `ThreatModel` with a target rule, or a known name, such as "cifar10-linf".
        attack: an attack, its name with settings ("pgd:steps=100"), or several of either.
        limit: number of samples, from the first; all by default.
        seed: of all random numbers; those of a sample depend on this and its id alone.
        device: "cpu" or "cuda"; by default a GPU where there is one.
        out: output folder; a run found there is resumed. Several attacks get one folder each inside.
        keep_images: whether the adversarial images are kept, in the result and in `out`.
        name: name of the model in titles and folders.
        search: how samples are attacked; see `Search`.
        execution: how the work is done, without effect on results; see `Execution`.
        progress: is called as the run proceeds; see `robustassay.evaluation.progress.Progress`.

    """
    chosen_device = choose_device(device)
    model_ref = model if isinstance(model, ModelRef) else ModelRef.of(model, name)
    dataset = as_model_input(model_ref.module, as_dataset(data)).take(None if limit is None else whole("limit", limit))
    job = Job(
        model_ref=model_ref,
        dataset=dataset,
        threat=as_threat(threat),
        seed=whole("seed", seed),
        device=chosen_device,
        batch_size=execution.batch_size,
        wave_size=fitting_wave(chosen_device, dataset) if execution.wave_size is None else execution.wave_size,
        keep_images=keep_images,
        query_budget=search.query_budget,
        shard=execution.shard,
        eot=search.eot,
        despite_flags=search.despite_flags or search.adaptive is not None,
        precision=search.precision,
        backend=choose_backend(execution.workers, execution.ray),
        progress=progress or NoProgress(),
    )
    chosen = [attacks.create(one) for one in as_list(attack)]
    if search.smallest_eps:
        chosen = [one if one.seeks_minimum else MinimumRadius(spell("attack", one).replace(",", ";")) for one in chosen]
    if not chosen:
        raise BadRequest("Name at least one attack, such as pgd.")
    network, flags = job.prepare(chosen)
    advice = seek_advice(job, network, flags, search.adaptive)
    with tempfile.TemporaryDirectory(prefix="assay-") as scratch:
        folder = Path(scratch) / "run" if out is None else Path(out)
        if isinstance(attack, str | Attack) and not (search.confirm or search.adaptive):
            return job.run(network, chosen[0], job.open(network, flags, chosen[0], folder))
        named = dict(zip(distinct_names(chosen), chosen, strict=True))
        stores = {
            label: job.open(network, flags, one, folder / label, advice.remarks) for label, one in named.items()
        }  # all, before any long work
        parts = {label: job.run(network, one, stores[label]) for label, one in named.items()}
        parts = advice.follow(job, network, flags, parts, folder)
        return job.confirm(network, flags, search.confirm, parts, folder) if search.confirm else Result.worst_of(parts)


@final
@dataclass(frozen=True)
class Job:
    """Everything about an evaluation but the attack."""

    model_ref: ModelRef
    dataset: Dataset
    threat: ThreatModel
    seed: int
    device: torch.device
    batch_size: int | None
    wave_size: int
    keep_images: bool
    query_budget: int | None
    shard: tuple[int, int]
    eot: int
    despite_flags: bool
    precision: Precision
    backend: Backend | None
    progress: Progress

    def prepare(self, chosen: Sequence[Attack[Any]]) -> tuple[TargetModel, tuple[Flag, ...]]:
        """Check everything that can be checked before work starts."""
        part, parts = self.shard
        if part > len(self.dataset):
            raise BadRequest(f"Shard {part}/{parts} of {len(self.dataset)} samples is empty: use fewer shards.")
        network, flags = self._open_network()
        if self.threat.target is not None:
            self.threat.target.check(self.dataset.ids, self.dataset.labels, network.classes)
        for attack in chosen:
            check_attack(attack, self.threat, flags, self.despite_flags)
            over_the_wire(network, attack)
        return network, flags

    def _open_network(self) -> tuple[TargetModel, tuple[Flag, ...]]:
        """Look at the model, unless this very model_ref was looked at before in the same way."""
        how = (self.device, self.batch_size, self.eot, self.despite_flags, self.precision)
        shown = (self.dataset.sha256, tuple(self.dataset.ids))
        looks = self.model_ref.looks
        if (shown, how) not in looks:
            looks[shown, how] = open_network(self.model_ref.module, self.dataset, *how)
        network, flags = looks[shown, how]
        network.forget()
        return network, flags

    def spec(self, attack: Attack[Any], network: TargetModel) -> RunSpec:
        """State what the results of this job with this attack depend on."""
        rule, searched = self.threat.target, network.searched_for(attack.seeks_minimum)
        return RunSpec(
            model={
                "name": self.model_ref.name,
                **self.model_ref.identity,
                **({"eot": self.eot} if network.random else {}),
                **({} if searched.surrogate is None else {"search": searched.surrogate.name}),
            },
            data={"name": self.dataset.name, "sha256": self.dataset.sha256},
            threat={
                "norm": self.threat.norm.name,
                "eps": self.threat.norm.eps,
                "target": rule.identity if rule else None,
                "query_budget": self.query_budget,
            },
            attack=describe("attack", attack),
            seed=self.seed,
        )

    def title(self, attack: Attack[Any]) -> str:
        """Say in a line what is evaluated."""
        return f"{self.model_ref.name} on {self.dataset.name}, {name_of('attack', type(attack))}, {self.threat}"

    def open(
        self,
        network: TargetModel,
        flags: Sequence[Flag],
        attack: Attack[Any],
        folder: Path,
        remarks: Mapping[str, Any] | None = None,
    ) -> Store:
        """Start a run's folder, or open it; refuse one that another run, or another model, has written."""
        Store(folder).check_room(len(self.dataset), self.dataset.images(slice(0, 1)).nbytes if self.keep_images else 0)
        answers = probe(self.model_ref.module, self.dataset, self.device)
        manifest = write_manifest(self.spec(attack, network), self.title(attack), self.device) | {
            "flags": {flag.name: flag.text for flag in flags},
            "stages": self._stages(network, attack),
            "probe": answers,
            **(remarks or {}),
        }
        store = Store.open(folder, manifest)
        check_probe(store.manifest().get("probe", []), answers, folder)
        return store

    def _stages(self, network: TargetModel, attack: Attack[Any]) -> list[str]:
        stages = list(attack.stage_names(self.threat.norm))
        return (
            [*stages, FULL_PRECISION] if stages and network.searched_for(attack.seeks_minimum).margin_error else stages
        )

    def confirm(
        self, network: TargetModel, flags: Sequence[Flag], by: bool | str, parts: dict[str, Result], folder: Path
    ) -> Result:
        """Attack what is in doubt again, and merge."""
        first = Result.worst_of(parts)
        in_doubt = set(first.doubtful)
        if not in_doubt:
            return first
        rows = [row for row, sample in enumerate(self.dataset.ids) if sample in in_doubt]
        job = replace(self, dataset=self.dataset.select(rows), shard=(1, 1))
        attack = attacks.create(by if isinstance(by, str) else "autoattack")
        check_attack(attack, self.threat, flags, self.despite_flags)
        confirms = {CONFIRMS: [part.manifest["key"] for part in parts.values()]}
        store = job.open(network, flags, attack, folder / "confirm", confirms)
        return Result.worst_of({**parts, "confirm": job.run(network, attack, store)})

    def run(self, network: TargetModel, attack: Attack[Any], store: Store) -> Result:
        """Attack every sample that has no record yet, wave by wave, and return what is known then."""
        wanted = range(self.shard[0] - 1, len(self.dataset), self.shard[1])
        done = store.done(with_images=self.keep_images)
        missing = [row for row in wanted if self.dataset.ids[row] not in done]
        self.progress.start(self.title(attack), len(wanted), len(wanted) - len(missing))
        try:
            with graceful_interrupt() as stop:
                self._run_waves(
                    network, attack, store, missing, ProgressMeter(self.progress, len(wanted), missing), stop
                )
        finally:
            self.progress.finish()
        return Result.of_store(store, [self.dataset.ids[row] for row in wanted])

    def _run_waves(
        self,
        network: TargetModel,
        attack: Attack[Any],
        store: Store,
        missing: list[int],
        meter: ProgressMeter,
        stop: StopRequest,
    ) -> None:
        workload = Workload(network, attack, self.threat, self.dataset, self.seed, self.query_budget)
        workers = self.backend.workers if self.backend else 1
        shares = workload.shares(missing, self.wave_size, workers)
        tolerance = Tolerance(meter.total)
        for _, found in self.backend.work(workload, shares, stop) if self.backend else _alone(workload, shares, meter):
            if len(found.records):
                store.append(found.records, found.x_adv if self.keep_images else None)
            store.note_failures(found.failures)
            tolerance.spend(found.failures)
            meter.wave_done(rates.robust_accuracy(found.records.to_pandas()), len(found.failures))
            if stop.asked and not self.backend:
                break
        if stop.asked:
            raise Interrupted(
                f"Stopped after {meter.finished} of {meter.total} samples: run the same command again to resume."
            )


def _alone(workload: Workload, shares: Iterator[Share], meter: ProgressMeter) -> Iterator[Done]:
    for share in shares:
        yield share, workload.do(share, meter.on_step(workload.attack, len(share)))
