"""Runs attacks wave by wave until no sample is missing, and saves every wave."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from robustassay.analysis import rates
from robustassay.attacks.attack import Attack
from robustassay.errors import Interrupted
from robustassay.evaluation.checks import check_probe, probe
from robustassay.evaluation.manifest import write_manifest
from robustassay.evaluation.prepare import PreparedEvaluation
from robustassay.evaluation.progress import ProgressMeter
from robustassay.evaluation.result import Result
from robustassay.evaluation.spec import RunSpec, check_version
from robustassay.evaluation.wave import FULL_PRECISION
from robustassay.evaluation.wave_result import FailureLimit
from robustassay.evaluation.wave_runner import WaveRunner, plan_waves
from robustassay.interrupt import StopRequest, set_estimate
from robustassay.results.identity import ADAPTIVE
from robustassay.store import Store


@final
@dataclass(frozen=True)
class OutputFolder:
    """Where runs are saved; a temporary one is gone when the evaluation ends."""

    path: Path
    temporary: bool = False

    def part(self, name: str) -> "OutputFolder":
        """Return the folder of one part."""
        return OutputFolder(self.path / name, self.temporary)


@contextlib.contextmanager
def output_folder(out: str | Path | None) -> Iterator[OutputFolder]:
    """Give the folder that was asked for, or a temporary one."""
    if out is not None:
        yield OutputFolder(Path(out))
        return
    with tempfile.TemporaryDirectory(prefix="assay-") as scratch:
        yield OutputFolder(Path(scratch) / "run", temporary=True)


def missing_samples(prepared: PreparedEvaluation, folder: Path) -> int:
    """Count the samples that an attack of the evaluation has no record of yet."""
    counts = []
    for name in prepared.attacks:
        store = Store(folder / name if prepared.one_folder_per_attack else folder)
        done = store.done(with_images=prepared.keep_images) if store.exists() else frozenset()
        part, parts = prepared.execution.shard
        counts.append(sum(sample not in done for sample in prepared.dataset.ids[part - 1 :: parts]))
    return max(counts)


def run_all(prepared: PreparedEvaluation, folder: OutputFolder, stop: StopRequest) -> dict[str, Result]:
    """Run every attack of an evaluation; return their results by name."""
    folders = {name: folder.part(name) if prepared.one_folder_per_attack else folder for name in prepared.attacks}
    stores = {  # all folders are checked before any long work
        name: open_store(prepared, attack, folders[name].path, prepared.spec(attack), prepared.advice.manifest_entries)
        for name, attack in prepared.attacks.items()
    }
    return {
        name: run_attack(prepared, attack, stores[name], stop, folder.temporary)
        for name, attack in prepared.attacks.items()
    }


def open_store(
    prepared: PreparedEvaluation, attack: Attack[Any], folder: Path, spec: RunSpec, entries: Mapping[str, Any]
) -> Store:
    """Start the folder of a run, or open it; refuse a folder of another run or another model."""
    dataset, target = prepared.dataset, prepared.target
    Store(folder).check_room(len(dataset), dataset.images(slice(0, 1)).nbytes if prepared.keep_images else 0)
    outputs = probe(prepared.model_ref.module, dataset.whole, target.device)
    manifest = write_manifest(spec, prepared.title(attack), target.device) | {
        "flags": {flag.name: flag.text for flag in prepared.flags},
        "stages": _stages(prepared, attack),
        "probe": outputs,
        **entries,
    }
    if Store(folder).exists():
        check_version(Store(folder).manifest(), folder)
    store = Store.open(folder, manifest)
    check_probe(store.manifest().get("probe", []), outputs, folder)
    _renew_diagnosis(store, entries)
    return store


def _renew_diagnosis(store: Store, entries: Mapping[str, Any]) -> None:
    """Note the new diagnosis where a run goes on with more samples, and so with a diagnosis on others."""
    new, held = (found.get(ADAPTIVE, {}) for found in (entries, store.manifest()))
    if new.get("samples") != held.get("samples"):
        store.note_after({ADAPTIVE: dict(new)})


def _stages(prepared: PreparedEvaluation, attack: Attack[Any]) -> list[str]:
    stages = list(attack.stage_names(prepared.threat.norm))
    searched = prepared.target.for_search(attack.needs_exact_search(prepared.threat.norm))
    return [*stages, FULL_PRECISION] if stages and searched.margin_error else stages


def run_attack(
    prepared: PreparedEvaluation, attack: Attack[Any], store: Store, stop: StopRequest, temporary: bool
) -> Result:
    """Attack every sample that has no record yet; return the result of all."""
    part, parts = prepared.execution.shard
    wanted = range(part - 1, len(prepared.dataset), parts)
    done = store.done(with_images=prepared.keep_images)
    missing = [row for row in wanted if prepared.dataset.ids[row] not in done]
    meter = ProgressMeter(prepared.progress, len(wanted), missing)
    prepared.progress.start(prepared.title(attack), len(wanted), meter.finished)
    try:
        if missing and not stop.asked:
            _run_waves(prepared, attack, store, missing, meter, stop)
    finally:
        set_estimate(None)
        prepared.progress.finish()
    if meter.finished < len(wanted):
        then = "nothing is saved without an output folder" if temporary else "run the same command again to resume"
        raise Interrupted(f"Stopped after {meter.finished} of {len(wanted)} samples: {then}.")
    store.note_redone(prepared.dataset.ids)
    return Result.of_store(store, [prepared.dataset.ids[row] for row in wanted])


def _run_waves(
    prepared: PreparedEvaluation,
    attack: Attack[Any],
    store: Store,
    missing: list[int],
    meter: ProgressMeter,
    stop: StopRequest,
) -> None:
    target, backend = prepared.target, prepared.backend
    runner = WaveRunner(target, attack, prepared.threat, prepared.dataset, prepared.seed, prepared.search.query_budget)
    waves = plan_waves(missing, prepared.wave_size, backend.workers, target.random)
    failure_limit = FailureLimit(meter.total)
    for found in backend.run_waves(runner, waves, stop, lambda rows: meter.on_step(attack, rows)):
        if len(found.records):
            store.append(found.records, found.x_adv if prepared.keep_images else None)
        store.note_failures(found.failures)
        failure_limit.count(found.failures)
        meter.wave_done(rates.robust_accuracy(found.records.to_pandas()), len(found.failures))
