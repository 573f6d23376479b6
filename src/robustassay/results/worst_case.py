"""Selects the runs of one model that are comparable, and merges their records into the worst case over attacks."""

from collections.abc import Mapping, Sequence

import pandas as pd

from robustassay.analysis import rates, trust
from robustassay.results.identity import confirmed_run_keys, run_key
from robustassay.results.run_warnings import SingleRun


def worst_case(runs: Mapping[str, SingleRun]) -> pd.DataFrame:
    """Merge the records of several attacks: a sample is broken if one of them broke it."""
    return rates.worst_case({name: run.records for name, run in runs.items()})


def comparable(runs: Sequence[SingleRun]) -> dict[str, SingleRun]:
    """Return the comparable runs by key.

    They cover the same samples as the run with the most samples, or confirm such a run.
    """
    complete = [run for run in runs if not confirmed_run_keys(run.manifest)] or runs
    covering = trust.covering({run_key(run.manifest): run.records for run in complete})
    confirming = [run for run in runs if confirmed_run_keys(run.manifest) & covering.keys()]
    kept = [run for run in complete if run_key(run.manifest) in covering]
    return {run_key(run.manifest): run for run in [*kept, *confirming]}
