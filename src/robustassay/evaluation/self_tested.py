"""Adds self-tests and proofs to results, and stores them beside the records of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from robustassay.analysis import rates
from robustassay.attacks.attack import Attack
from robustassay.evaluation.certified import certified_entry, certified_samples
from robustassay.evaluation.prepare import PreparedEvaluation
from robustassay.evaluation.result import Result
from robustassay.evaluation.run import OutputFolder
from robustassay.evaluation.self_test import choose_samples, run_self_test
from robustassay.interrupt import StopRequest
from robustassay.results.evidence import CERTIFIED
from robustassay.results.self_test import SELF_TEST, SelfTest, merge
from robustassay.results.worst_case import worst_case
from robustassay.store import Store


def examine_attacks(
    prepared: PreparedEvaluation, results: Mapping[str, Result], folder: OutputFolder, stop: StopRequest
) -> dict[str, Result]:
    """Test every attack of an evaluation, all on the same samples; of a run in shards, the first shard does it."""
    count = prepared.search.self_test_samples
    if not count or prepared.execution.shard[0] > 1:
        return dict(results)
    samples = choose_samples(worst_case(results), count)
    folders = folders_of(prepared, results, folder)
    return {
        name: _examined(prepared, prepared.attacks[name], result, samples, folders[name], stop)
        for name, result in results.items()
    }


def prove_some(prepared: PreparedEvaluation, results: Mapping[str, Result], folder: OutputFolder) -> dict[str, Result]:
    """Prove, where the model has sound bounds, which unbroken samples are robust; the first run holds the proofs."""
    name, first = next(iter(results.items()))
    held = first.manifest.get(CERTIFIED)
    if prepared.target.is_remote or (isinstance(held, Mapping) and held.get("total") == len(first.records)):
        return dict(results)
    worst = worst_case(results)
    unbroken = list(worst["sample_id"][rates.unbroken(worst)])
    proved = certified_samples(prepared.model_ref.module, prepared.threat, prepared.dataset, unbroken)
    if proved is None:
        return dict(results)
    store = Store(folders_of(prepared, results, folder)[name].path)
    store.note_after({CERTIFIED: certified_entry(proved, len(first.records))})
    return {**results, name: replace(first, manifest=store.manifest())}


def folders_of(
    prepared: PreparedEvaluation, results: Mapping[str, Result], folder: OutputFolder
) -> dict[str, OutputFolder]:
    """Return the folder of each attack of an evaluation."""
    return {name: folder.part(name) if prepared.one_folder_per_attack else folder for name in results}


def examine_what_is_left(
    prepared: PreparedEvaluation,
    attack: Attack[Any],
    result: Result,
    parts: Mapping[str, Result],
    folder: OutputFolder,
    stop: StopRequest,
) -> Result:
    """Test a further attack on the samples whose planted examples no part has found yet."""
    made = merge(part.self_test for part in parts.values())
    samples = [sample for sample in made.asked if not made.found.get(sample, False)]
    return _examined(prepared, attack, result, samples, folder, stop) if samples else result


def _examined(
    prepared: PreparedEvaluation,
    attack: Attack[Any],
    result: Result,
    samples: Sequence[str],
    folder: OutputFolder,
    stop: StopRequest,
) -> Result:
    """Return a result with its self-test, which is not made again where the folder holds that of these samples."""
    if SelfTest.of(result.manifest).asked == tuple(samples):
        return result
    store = Store(folder.path)
    store.note_after({SELF_TEST: run_self_test(prepared, attack, samples, stop).to_json()})
    return replace(result, manifest=store.manifest())
