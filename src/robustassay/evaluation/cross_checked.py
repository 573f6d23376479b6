"""Adds a cross-check to the result of attacks with gradients, and stores it beside the records."""

from collections.abc import Mapping
from dataclasses import replace

from robustassay.analysis import rates
from robustassay.evaluation.adaptive import open_adviser
from robustassay.evaluation.prepare import PreparedEvaluation
from robustassay.evaluation.result import Result
from robustassay.evaluation.run import OutputFolder
from robustassay.evaluation.self_test import spread
from robustassay.evaluation.self_tested import folders_of
from robustassay.results.cross_check import CROSS_CHECK, CrossCheck
from robustassay.results.evidence import is_standard
from robustassay.results.worst_case import worst_case
from robustassay.store import Store
from robustassay.target import GradientAccess


def cross_check(prepared: PreparedEvaluation, results: Mapping[str, Result], folder: OutputFolder) -> dict[str, Result]:
    """Attack, through other gradients, a few samples that no attack broke; the first run holds what is found.

    An adaptive evaluation needs none: its diagnosis makes the same attacks on more samples.
    """
    name, first = next(iter(results.items()))
    if not _applies(prepared):
        return dict(results)
    worst = worst_case(results)
    samples = spread(list(worst["sample_id"][rates.unbroken(worst)]), prepared.search.self_test_samples)
    if not samples or set(CrossCheck.of(first.manifest).asked) == set(samples):
        return dict(results)
    asked, rest = prepared.on_samples(samples), set(prepared.dataset.ids) - set(samples)
    others = prepared.on_samples(rest).dataset if rest else None
    strong = any(is_standard(result.manifest) for result in results.values())
    spent = float(worst["backwards"][rates.unbroken(worst)].mean()) if strong else 0.0
    found = open_adviser().cross_check(prepared.target, asked.dataset, others, prepared.threat, spent)
    store = Store(folders_of(prepared, results, folder)[name].path)
    store.note_after({CROSS_CHECK: found.to_json()})
    return {**results, name: replace(first, manifest=store.manifest())}


def _applies(prepared: PreparedEvaluation) -> bool:
    """Whether an attacker with gradients is evaluated, without targets, and not adaptive."""
    by_gradient = any(issubclass(attack.access, GradientAccess) for attack in prepared.attacks.values())
    return (
        by_gradient
        and prepared.target.gives_gradients
        and prepared.threat.target is None
        and prepared.search.query_budget is None
        and prepared.search.adaptive is None
        and prepared.search.self_test_samples > 0
        and prepared.execution.shard[0] == 1
    )
