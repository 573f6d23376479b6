"""The runs that the worst case over attacks may be taken over."""

from collections.abc import Mapping, Sequence

import pandas as pd

from robustassay.analysis import rates, trust
from robustassay.results.evidence import SingleRun
from robustassay.results.identity import confirms, run_key


def worst_case(runs: Mapping[str, SingleRun]) -> pd.DataFrame:
    """Merge the records of several attacks: a sample is broken if one of them broke it."""
    return rates.worst_case({name: run.records for name, run in runs.items()})


def comparable(runs: Sequence[SingleRun]) -> dict[str, SingleRun]:
    """Keep the runs on the same samples as the largest, and the runs that confirm one of them; by key."""
    complete = [run for run in runs if not confirms(run.manifest)] or runs
    covering = trust.covering({run_key(run.manifest): run.records for run in complete})
    confirming = [run for run in runs if confirms(run.manifest) & covering.keys()]
    kept = [run for run in complete if run_key(run.manifest) in covering]
    return {run_key(run.manifest): run for run in [*kept, *confirming]}
