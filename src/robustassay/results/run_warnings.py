"""How far the records of one or several runs can be trusted: flags, unverified claims, samples in doubt."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import pandas as pd

from robustassay.analysis import rates, trust
from robustassay.analysis.doubt import AttackTraits
from robustassay.results.cross_check import CROSS_CHECK_FLAG, CrossCheck, first_failed
from robustassay.results.identity import ADAPTIVE, is_noise
from robustassay.results.self_test import SELF_TEST_FLAG, SelfTest, merge


class SingleRun(Protocol):
    """A manifest with its records, such as a `Result` or a `RunRecords`."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The specification of the run, and where and when it ran."""

    @property
    def records(self) -> pd.DataFrame:
        """One row per sample."""

    @property
    def failures(self) -> Mapping[str, str]:
        """The error of each sample that has no record because the model failed on it."""

    @property
    def flags(self) -> Mapping[str, str]:
        """Reasons to doubt the robust accuracy."""


@final
@dataclass(frozen=True, eq=False)
class RunRecords:
    """The manifest and the records of one run."""

    manifest: Mapping[str, Any]
    records: pd.DataFrame = field(repr=False)
    failures: Mapping[str, str] = field(default_factory=dict, repr=False)  # errors of samples without a record

    @property
    def flags(self) -> dict[str, str]:
        """Reasons to doubt the robust accuracy."""
        return run_flags(self.manifest, self.records, self.failures)


def run_flags(
    manifest: Mapping[str, Any], records: pd.DataFrame, failures: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the flags of one run.

    They were raised before it, by the diagnosis, by its records, by its self-test and cross-check, and for samples the
    model failed on.
    """
    unjudged = trust.unjudged(rates.robust_accuracy(records), failures or {})
    before = {**manifest.get("flags", {}), **diagnosis_flags(manifest)}
    after = {**SelfTest.of(manifest).flags, **CrossCheck.of(manifest).flags}
    return {**before, **trust.flags_of(records), **after, **unjudged}


def diagnosis_flags(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return every alarm of the diagnosis that came before an adaptive run as a flag, such as doctor-vanishing-loss."""
    indicators = manifest.get(ADAPTIVE, {}).get("indicators", ())
    return {
        f"doctor-{str(one['indicator']).replace(' ', '-')}": f"The doctor raised an alarm: {one['evidence']}"
        for one in indicators
        if one.get("verdict") == "alarm"
    }


def merged_flags(runs: Iterable[SingleRun]) -> dict[str, str]:
    """Return the flags of all runs, each once; of their self-tests, that of all attacks together."""
    every = list(runs)
    broken = {sample for run in every for sample in run.records["sample_id"][run.records["success"].astype(bool)]}
    unbroken = {sample for run in every for sample in run.records["sample_id"]} - broken
    return merge_flags([run.flags for run in every], [run.manifest for run in every], unbroken)


def merge_flags(
    flags: Iterable[Mapping[str, str]], manifests: Iterable[Mapping[str, Any]], unbroken: Collection[str]
) -> dict[str, str]:
    """Merge the flags of several runs, given with their manifests and the samples that none of them broke."""
    runs, of_all = list(manifests), (SELF_TEST_FLAG, CROSS_CHECK_FLAG)
    found = {name: text for one in flags for name, text in one.items() if name not in of_all}
    return found | merge(map(SelfTest.of, runs)).flags | first_failed(runs, unbroken).flags


def effort(run: SingleRun) -> trust.Effort:
    """Say how hard the attack of a run tried, as its records show."""
    return trust.effort(run.records, is_noise(run.manifest))


def has_iterated_attack(runs: Iterable[SingleRun]) -> bool:
    """Say whether an attack followed the gradient for more than one step."""
    return any(effort(run) is trust.Effort.ITERATED for run in runs)


def invalid_claims(runs: Iterable[SingleRun]) -> int:
    """Count the claimed successes that were not verified, over all runs."""
    return sum(sum(trust.invalid_claims(run.records).values()) for run in runs)


def samples_in_doubt(
    worst: pd.DataFrame,
    flags: Collection[str],
    proved: Collection[str] = (),
    traits: AttackTraits = AttackTraits(),  # noqa: B008, a frozen value
) -> list[str]:
    """Return the ids of unbroken samples that a stronger attack may still break.

    They are judged by what stands after all runs, remedies and confirming runs included: an attack that fails once more
    ends no doubt. A proof does.
    """
    return [sample for sample in worst["sample_id"][trust.doubtful(worst, flags, traits)] if sample not in set(proved)]
