"""Checks what a confirming run says it confirms: it covers few samples, so complete runs must stand beside it."""

from collections.abc import Mapping
from typing import Final

from robustassay.evaluation import Result
from robustassay.leaderboard.admission import Check
from robustassay.results.identity import comparison, confirmed_run_keys

RULE: Final = "confirms"


def check_confirmed(results: Mapping[str, Result]) -> list[Check]:
    """Check every confirming run of a submission, whose runs are given by their keys."""
    return [_check(key, results) for key, result in results.items() if confirmed_run_keys(result.manifest)]


def _check(key: str, results: Mapping[str, Result]) -> Check:
    own, named = results[key], confirmed_run_keys(results[key].manifest)
    if absent := sorted(named - results.keys()):
        return Check(RULE, False, f"{key} confirms {absent[0][:40]!r}, which is no run of this submission: add it.")
    complete = [results[one] for one in named if not confirmed_run_keys(results[one].manifest)]
    if not complete:
        return Check(RULE, False, f"{key} confirms no complete run: add the run that left its samples in doubt.")
    if any(comparison(one.manifest["spec"]) != comparison(own.manifest["spec"]) for one in complete):
        return Check(RULE, False, f"{key} confirms a run of another model, dataset or threat.")
    if any(set(own.records["sample_id"]) - set(one.records["sample_id"]) for one in complete):
        return Check(RULE, False, f"{key} has samples that a run it confirms does not have.")
    return Check(RULE, True, f"{key} covers {len(own.records)} samples of complete runs of this submission.")
