"""Selects the runs of one model that are comparable, and merges their records into the worst case over attacks."""

from collections.abc import Mapping, Sequence

import pandas as pd

from robustassay.analysis import rates
from robustassay.results.identity import confirmed_run_keys, run_key
from robustassay.results.run_warnings import SingleRun


def worst_case(runs: Mapping[str, SingleRun]) -> pd.DataFrame:
    """Merge the records of several attacks: a sample is broken if one of them broke it.

    A sample that none of them broke, and on which the model failed under one of them, is unknown: it is left out.
    """
    merged = rates.worst_case({name: run.records for name, run in runs.items()})
    failed = {sample for run in runs.values() for sample in run.failures}
    return merged[merged["success"] | ~merged["sample_id"].isin(failed)].reset_index(drop=True)


def merge_records(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Merge records of one run from several places: one row per sample, and where they differ a success counts."""
    both = pd.concat(parts, ignore_index=True).sort_values("success", ascending=False, kind="stable")
    return both.drop_duplicates("sample_id").reset_index(drop=True)


def attacked_samples(run: SingleRun) -> set[str]:
    """Return the samples of a run, those on which the model failed included."""
    return {*run.records["sample_id"], *run.failures}


def comparable(runs: Sequence[SingleRun]) -> dict[str, SingleRun]:
    """Return the comparable runs by key.

    They cover the same samples as the run with the most samples, or confirm such a run. A run on fewer samples would
    make the worst case too high: samples that it did not attack would count as robust.
    """
    complete = [run for run in runs if not confirmed_run_keys(run.manifest)] or runs
    samples = {run_key(run.manifest): attacked_samples(run) for run in complete}
    most = max(samples.values(), key=len)
    kept = [run for run in complete if samples[run_key(run.manifest)] == most]
    kept_keys = {run_key(run.manifest) for run in kept}
    confirming = [run for run in runs if confirmed_run_keys(run.manifest) & kept_keys]
    return {run_key(run.manifest): run for run in [*kept, *confirming]}
