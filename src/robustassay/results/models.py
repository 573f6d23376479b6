"""One model under one threat, as the worst case over its attacks; and all models under one threat, in order."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import pandas as pd

from robustassay.analysis import compare, rates, trust
from robustassay.analysis.fairness import fairness
from robustassay.analysis.ranks import Ranks
from robustassay.analysis.rates import Rate
from robustassay.results import run_warnings
from robustassay.results.evidence import Evidence, attack_traits, evidence, proved_samples
from robustassay.results.identity import limited_to_queries
from robustassay.results.ranking import rank_on_shared_samples
from robustassay.results.run_warnings import RunRecords, merge_flags
from robustassay.results.runs import StoredRun
from robustassay.results.self_test import SELF_TEST_FLAG
from robustassay.results.worst_case import comparable, worst_case

Frames = Mapping[str, pd.DataFrame]
"""Records by the key of their run."""


@final
@dataclass(frozen=True, eq=False)
class AttackSummary:
    """What the records of one run show; the records themselves are not kept."""

    run: StoredRun
    label: str  # the attack, with the settings in which it differs from others of the same name
    numbers: trust.RunNumbers
    failures: Mapping[str, str] = field(repr=False)  # the error of each sample on which the model failed
    flags: Mapping[str, str]
    effort: trust.Effort
    stages: Mapping[str, Rate]  # of a composed attack: the robust accuracy after each stage
    broken: int  # of the samples classified correctly
    broken_alone: int  # of those, how many no other attack on the model under the threat broke

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.run.key


@final
@dataclass(frozen=True, eq=False)
class ModelResult:
    """One model under one threat: the worst case over its attacks."""

    attacks: tuple[AttackSummary, ...]  # from the weakest to the strongest
    counted: tuple[AttackSummary, ...]  # in the worst case; the others cover other samples
    clean: Rate
    robust: Rate
    order: trust.AttackOrder
    doubtful: frozenset[str]  # ids of unbroken samples that a stronger attack may still break
    classes: pd.DataFrame = field(repr=False)
    robust_samples: pd.Series = field(repr=False)  # true or false by sample id

    @property
    def first(self) -> StoredRun:
        """The first of its runs, which all share model, data and threat."""
        return self.attacks[0].run

    @property
    def model_id(self) -> str:
        """The identity of the model."""
        return self.first.model_id

    @property
    def threat(self) -> str:
        """The threat, such as L∞ 8/255."""
        return self.first.threat

    @property
    def in_doubt(self) -> int:
        """How many unbroken samples a stronger attack may still break."""
        return len(self.doubtful)

    @property
    def flags(self) -> dict[str, str]:
        """Reasons to doubt the robust accuracy."""
        manifests = [attack.run.manifest for attack in self.counted]
        return merge_flags([attack.flags for attack in self.counted], manifests, self._unbroken)

    @property
    def _unbroken(self) -> set[str]:
        return set(self.robust_samples.index[self.robust_samples])

    @property
    def evidence(self) -> Evidence:
        """How the robust accuracy was earned."""
        return evidence([attack.run.manifest for attack in self.counted], self._unbroken)

    @property
    def invalid_claims(self) -> int:
        """How many claims of its attacks were not verified."""
        return sum(attack.numbers.invalid_claims for attack in self.attacks)

    @property
    def has_iterated_attack(self) -> bool:
        """Whether an attack followed the gradient for more than one step."""
        return any(attack.effort is trust.Effort.ITERATED for attack in self.counted)

    @property
    def only_weak_attacks(self) -> bool:
        """Whether samples stand that no attack of many gradient steps was tried on, although the threat allows one."""
        queries_only = limited_to_queries(self.first.manifest)
        return bool(self.robust.count) and not (self.has_iterated_attack or queries_only)

    @property
    def warnings(self) -> list[str]:
        """Why the robust accuracy may be too high, in a few words each."""
        found = [name for name in self.flags if name not in {*trust.HARMLESS, SELF_TEST_FLAG}]
        found += [f"{self.invalid_claims:,} claims not verified"] if self.invalid_claims else []
        found += ["an attack broke fewer samples than a weaker one"] if self.order.violations else []
        found += ["only weak attacks"] if self.only_weak_attacks else []
        failed = self.evidence.self_test if SELF_TEST_FLAG in self.flags else None
        return found if failed is None else [*found, f"self-test {failed.rate.count} of {failed.rate.total}"]


@final
@dataclass(frozen=True, eq=False)
class ThreatRanking:
    """All models under one threat on one dataset, the most robust first."""

    comparison_key: str
    data: str
    threat: str
    models: tuple[ModelResult, ...]
    ranks: Ranks | None  # by model_id, of the models that have the samples that most share
    samples: int  # the number of those samples

    @property
    def rank_ranges(self) -> dict[str, tuple[int, int]]:
        """The best and the worst rank of each model that was compared, by model_id."""
        return {place.name: (place.best, place.worst) for place in (self.ranks.places if self.ranks else ())}

    @property
    def letters(self) -> dict[str, str]:
        """The rank groups by model_id: models that share a letter do not differ significantly."""
        return self.ranks.letters() if self.ranks else {}


def summarise_attacks(
    runs: Sequence[StoredRun], frames: Frames, labels: Mapping[str, str]
) -> tuple[AttackSummary, ...]:
    """Summarise each run of one model under one threat, from the weakest attack to the strongest."""
    broken = {run.key: _broken(frames[run.key]) for run in runs}
    times = Counter(sample for samples in broken.values() for sample in samples)
    ordered = sorted(runs, key=lambda run: len(broken[run.key]))
    return tuple(_summarise(run, frames[run.key], labels[run.key], broken[run.key], times) for run in ordered)


def _summarise(
    run: StoredRun, records: pd.DataFrame, label: str, broken: Sequence[str], times: Mapping[str, int]
) -> AttackSummary:
    done = set(records["sample_id"])
    failures = {sample: why for sample, why in run.failures().items() if sample not in done}
    loaded = RunRecords(run.manifest, records, failures)
    return AttackSummary(
        run=run,
        label=label,
        numbers=trust.summarise(records),
        failures=failures,
        flags=loaded.flags,
        effort=run_warnings.effort(loaded),
        stages=trust.after_each_stage(records, run.manifest.get("stages", ())),
        broken=len(broken),
        broken_alone=sum(times[sample] == 1 for sample in broken),
    )


def combine_attacks(attacks: Sequence[AttackSummary], frames: Frames) -> ModelResult:
    """Take the worst case over the attacks on one model under one threat, all of which have records."""
    runs = [RunRecords(attack.run.manifest, frames[attack.key], attack.failures) for attack in attacks]
    parts = comparable(runs)
    worst = worst_case(parts)
    counted = tuple(attack for attack in attacks if attack.key in parts)
    robust_samples = compare.robust_samples(worst)
    unbroken = set(robust_samples.index[robust_samples])
    flags = merge_flags([attack.flags for attack in counted], [attack.run.manifest for attack in counted], unbroken)
    noise = [attack.key for attack in attacks if attack.run.is_noise]
    manifests = [run.manifest for run in parts.values()]
    in_doubt = run_warnings.samples_in_doubt(worst, flags, proved_samples(manifests), attack_traits(manifests))
    return ModelResult(
        attacks=tuple(attacks),
        counted=counted,
        clean=rates.clean_accuracy(worst),
        robust=rates.robust_accuracy(worst),
        order=trust.check_order({attack.key: frames[attack.key] for attack in attacks}, noise),
        doubtful=frozenset(in_doubt),
        classes=fairness(worst).classes,
        robust_samples=robust_samples,
    )


def rank_models(results: Iterable[ModelResult]) -> tuple[ThreatRanking, ...]:
    """Group results by dataset and threat, in the order they come, and rank the models of each group."""
    groups: dict[str, list[ModelResult]] = defaultdict(list)
    for result in results:
        groups[result.first.comparison_key].append(result)
    return tuple(_ranking(key, together) for key, together in groups.items())


def _ranking(key: str, results: Sequence[ModelResult]) -> ThreatRanking:
    ordered = sorted(results, key=lambda one: (-one.robust.value, -one.clean.value, one.first.model))
    ranks, samples = rank_on_shared_samples({one.model_id: one.robust_samples for one in results})
    return ThreatRanking(key, results[0].first.data, results[0].threat, tuple(ordered), ranks, samples)


def _broken(records: pd.DataFrame) -> list[str]:
    broken = records["clean_ok"].astype(bool) & records["success"].astype(bool)
    return list(records.loc[broken, "sample_id"])
