"""Concludes an evaluation: applies remedies, confirms samples in doubt, and merges all parts into the worst case."""

import dataclasses
from collections.abc import Collection, Mapping

from robustassay import attacks
from robustassay.analysis import rates
from robustassay.evaluation.adaptive import Remedy
from robustassay.evaluation.cross_checked import cross_check
from robustassay.evaluation.prepare import PreparedEvaluation
from robustassay.evaluation.result import Result
from robustassay.evaluation.run import OutputFolder, open_store, run_attack
from robustassay.evaluation.self_tested import examine_attacks, examine_what_is_left, prove_some
from robustassay.evaluation.spec import RunSpec
from robustassay.interrupt import StopRequest
from robustassay.results.identity import ADAPTIVE, CONFIRMS
from robustassay.store import Store


def conclude(
    prepared: PreparedEvaluation, results: Mapping[str, Result], folder: OutputFolder, stop: StopRequest
) -> Result:
    """Return the result of the evaluation: that of its one attack, or the worst case over all parts."""
    tested = examine_attacks(prepared, prove_some(prepared, results, folder), folder, stop)
    tested = cross_check(prepared, tested, folder)
    if not prepared.one_folder_per_attack:
        (only,) = tested.values()
        return only
    parts = apply_remedies(prepared, tested, folder, stop)
    return Result.worst_of(confirm(prepared, parts, folder, stop))


def apply_remedies(
    prepared: PreparedEvaluation, results: Mapping[str, Result], folder: OutputFolder, stop: StopRequest
) -> dict[str, Result]:
    """Attack the unbroken samples with one remedy after the other; return the results so far and these."""
    parts = dict(results)
    for remedy in prepared.advice.remedies:
        for number, attack in enumerate(remedy.attacks, 1):
            worst = Result.worst_of(parts).records
            unbroken = set(worst["sample_id"][rates.unbroken(worst)])
            if unbroken:
                fixed = prepared.with_target(prepared.target.with_module(remedy.module))
                spec = _spec(fixed, remedy, attack)
                name = _free_name(folder, _part_name(remedy, number, prepared.attacks), spec)
                place = folder.part(name)
                done = _run_remedy(fixed.on_samples(unbroken), remedy, attack, spec, results, place, stop)
                parts[name] = examine_what_is_left(fixed, attacks.create(attack), done, parts, place, stop)
    return parts


def _part_name(remedy: Remedy, number: int, taken: Collection[str]) -> str:
    """Name the part of one attack of a remedy; an attack of the evaluation may have the same name as the remedy."""
    name = f"{remedy.name}-{number}" if len(remedy.attacks) > 1 else remedy.name
    return f"remedy-{name}" if name in taken else name


def _free_name(folder: OutputFolder, name: str, spec: RunSpec) -> str:
    """Return another name where a diagnosis of fewer samples has chosen other settings of the remedy in this folder."""
    store = Store(folder.part(name).path)
    taken = store.exists() and store.manifest()["key"] != spec.key
    return f"{name}-{spec.key[:8]}" if taken else name


def _spec(prepared: PreparedEvaluation, remedy: Remedy, attack: str) -> RunSpec:
    """Return the specification of a remedy's run: of the same model; the remedy is part of the attack."""
    plain = prepared.spec(attacks.create(attack))
    return dataclasses.replace(plain, attack={**plain.attack, "remedy": remedy.name})


def _run_remedy(
    prepared: PreparedEvaluation,
    remedy: Remedy,
    attack: str,
    spec: RunSpec,
    results: Mapping[str, Result],
    folder: OutputFolder,
    stop: StopRequest,
) -> Result:
    """Run one attack of a remedy."""
    chosen = attacks.create(attack)
    entries = {
        CONFIRMS: [result.manifest["key"] for result in results.values()],
        ADAPTIVE: {"remedy": remedy.name, "because": remedy.because, "how": remedy.how},
    }
    store = open_store(prepared, chosen, folder.path, spec, entries)
    return run_attack(prepared, chosen, store, stop, folder.temporary)


def confirm(
    prepared: PreparedEvaluation, parts: dict[str, Result], folder: OutputFolder, stop: StopRequest
) -> dict[str, Result]:
    """Attack the samples in doubt again if a confirming attack is given; return the results so far and this one."""
    attack = prepared.confirming
    in_doubt = set() if attack is None else set(Result.worst_of(parts).doubtful)
    if attack is None or not in_doubt:
        return parts
    entries = {CONFIRMS: [part.manifest["key"] for part in parts.values()]}
    smaller, place = prepared.on_samples(in_doubt), folder.part("confirm")
    store = open_store(smaller, attack, place.path, smaller.spec(attack), entries)
    done = run_attack(smaller, attack, store, stop, place.temporary)
    return {**parts, "confirm": examine_what_is_left(prepared, attack, done, parts, place, stop)}
