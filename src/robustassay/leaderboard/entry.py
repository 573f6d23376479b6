"""An entry: one model under one threat; every number is computed from records or marked as published by others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

import pandas as pd

from robustassay import attacks
from robustassay.analysis import rates, trust
from robustassay.analysis.compare import robust_samples
from robustassay.eps import format_eps
from robustassay.errors import BadData
from robustassay.evaluation import Result
from robustassay.leaderboard.card import EntryCard
from robustassay.registry import describe
from robustassay.results import run_warnings
from robustassay.results.evidence import STANDARD, Evidence, attack_traits, evidence
from robustassay.results.identity import attack_name, confirmed_run_keys, hardware_name, run_key

FAMILY: Final = {"cifar10-1k": "cifar10"}
"""Subsets of a dataset, and the dataset whose board they are on."""

WEAK: Final = "No attack followed the gradient for more than one step: a stronger attack would break more samples."


@final
@dataclass(frozen=True, order=True)
class BoardThreat:
    """The dataset and threat of a board: what entries must share to be compared."""

    dataset: str
    norm: str
    eps: float | None
    target: str | None = None
    query_budget: int | None = None

    def __str__(self) -> str:
        words = [self.dataset, self.norm, *([] if self.eps is None else [format_eps(self.eps)])]
        words += [] if self.target is None else [f"targeted {self.target}"]
        words += [] if self.query_budget is None else [f"in {self.query_budget:,} queries"]
        return " ".join(words)


@final
@dataclass(frozen=True)
class Accuracy:
    """An accuracy, who or what measured it, and its 95 % interval where the samples are known."""

    value: float
    by: str
    low: float | None = None
    high: float | None = None
    samples: int | None = None
    external: bool = False

    @classmethod
    def of(cls, rate: rates.Rate, by: str) -> "Accuracy":
        """Make one from a rate that was measured here."""
        low, high = rate.interval()
        return cls(rate.value, by, low, high, rate.total)


@final
@dataclass(frozen=True)
class EntryRun:
    """The numbers of one run of an entry."""

    attack: Mapping[str, Any]
    robust: Accuracy
    stages: Mapping[str, float]  # of a composed attack: the robust accuracy after each stage
    forwards: float  # mean passes per image
    backwards: float
    seconds: float
    date: str
    hardware: str
    key: str


@final
@dataclass(frozen=True, eq=False)
class Entry:
    """One row of a board."""

    card: EntryCard
    threat: BoardThreat
    kind: Literal["measured", "published"]
    clean: Accuracy
    robust: Accuracy
    best_known: Accuracy  # the lowest over all evaluations: an upper bound of the true robust accuracy
    flags: Mapping[str, str] = field(default_factory=dict)
    doubtful: int = 0
    evidence: Evidence | None = None  # of a measured entry: how its best known accuracy was earned
    attacks: tuple[EntryRun, ...] = ()
    unreliable: bool = False
    signed: str = ""  # by whom; empty for entries without files here
    corruption_error: float | None = None  # mCE, of published corruption entries that have one
    robust_samples: pd.Series | None = field(default=None, repr=False)  # true or false, by data and sample id

    @property
    def seconds(self) -> float | None:
        """The seconds of all its evaluations."""
        return sum(one.seconds for one in self.attacks) if self.attacks else None

    @property
    def date(self) -> str:
        """The day of the latest evaluation."""
        return max((one.date for one in self.attacks), default="")

    @property
    def hardware(self) -> str:
        """The hardware of the evaluations."""
        return ", ".join(dict.fromkeys(one.hardware for one in self.attacks))


def board_threat(spec: Mapping[str, Any]) -> BoardThreat:
    """Return the board of the runs of a specification."""
    data, threat = str(spec["data"]["name"]), spec["threat"]
    target = None if threat.get("target") is None else str(threat["target"])
    return BoardThreat(FAMILY.get(data, data), threat["norm"], float(threat["eps"]), target, threat.get("query_budget"))


def measured_entry(card: EntryCard, results: Sequence[Result]) -> Entry:
    """Make the entry of a model from all its runs under one threat.

    The base run is the standard attack, or else the run on most samples. Other runs count on the samples of the base:
    whatever they break there lowers the best known accuracy.
    """
    base = _base(results)
    own = set(base.records["sample_id"])
    parts = {
        run_key(result.manifest): result.records[result.records["sample_id"].isin(own)]
        for result in [base, *(other for other in results if other is not base)]
        if result.manifest["spec"]["data"] == base.manifest["spec"]["data"]
    }
    parts = {key: records for key, records in parts.items() if len(records)}
    counted = [result for result in results if run_key(result.manifest) in parts]
    base_key = run_key(base.manifest)
    confirming = [run_key(one.manifest) for one in counted if base_key in confirmed_run_keys(one.manifest)]
    confirmed = {key: parts[key] for key in [base_key, *confirming]}
    headline, worst = rates.worst_case(confirmed), rates.worst_case(parts)
    manifests, flags = [result.manifest for result in counted], _warnings(counted)
    by = _attack_label(base.manifest) + (", confirmed" if len(confirmed) > 1 else "")
    known = Accuracy.of(rates.robust_accuracy(worst), by if len(parts) == len(confirmed) else f"{len(parts)} runs")
    threat = board_threat(base.manifest["spec"])
    sha = str(base.manifest["spec"]["data"]["sha256"])
    robust = robust_samples(worst)
    return Entry(
        card=card,
        threat=threat,
        kind="measured",
        clean=Accuracy.of(rates.clean_accuracy(worst), "no attack"),
        robust=Accuracy.of(rates.robust_accuracy(headline), by),
        best_known=_worst(known, card, threat),
        flags=flags,
        # A proof in the manifest of a stranger ends no doubt: nothing here checks it.
        doubtful=len(run_warnings.samples_in_doubt(worst, flags, traits=attack_traits(manifests))),
        evidence=evidence(manifests, set(worst["sample_id"][rates.unbroken(worst)])),
        attacks=tuple(_entry_run(result) for result in results),
        unreliable=bool(flags.keys() - trust.HARMLESS),
        robust_samples=robust.set_axis(pd.Index([f"{sha[:12]}/{one}" for one in robust.index])),
    )


def with_external(entry: Entry, accuracy: float, by: str) -> Entry:
    """Replace the best known accuracy of an entry by a lower one that somebody else measured."""
    if accuracy >= entry.best_known.value:
        return entry
    return replace(entry, best_known=Accuracy(accuracy, by, external=True))


def _worst(known: Accuracy, card: EntryCard, threat: BoardThreat) -> Accuracy:
    """Return an external accuracy under the same threat if it is lower than all that were measured here."""
    others = [one for one in card.external if (one.norm, one.eps) == (threat.norm, threat.eps)]
    lowest = min(others, key=lambda one: one.accuracy, default=None)
    if lowest is None or lowest.accuracy >= known.value or threat.target or threat.query_budget:
        return known
    return Accuracy(lowest.accuracy, lowest.by, external=True)


def _attack_label(manifest: Mapping[str, Any]) -> str:
    """Return the name of an attack; a standard attack has it only with its default settings."""
    name = attack_name(manifest)
    standard = name not in STANDARD or manifest["spec"]["attack"] == describe("attack", attacks.create(name))
    return name if standard else f"{name}, other settings"


def _base(results: Sequence[Result]) -> Result:
    complete = [result for result in results if not confirmed_run_keys(result.manifest)]
    if not complete:
        raise BadData("Only confirming runs, on samples that another run left in doubt: add the run that they confirm.")
    for name in STANDARD:
        if found := [result for result in complete if _attack_label(result.manifest) == name]:
            return max(found, key=lambda result: len(result.records))
    most = max(len(result.records) for result in complete)
    largest = [result for result in complete if len(result.records) == most]
    return min(largest, key=lambda result: result.robust_accuracy)


def _warnings(counted: Sequence[Result]) -> dict[str, str]:
    flags = run_warnings.merged_flags(counted)
    if invalid := run_warnings.invalid_claims(counted):
        flags["invalid-claims"] = f"{invalid} claimed successes were not verified; they count as failed attacks."
    if not run_warnings.has_iterated_attack(counted):
        flags["weak-evaluation"] = WEAK
    return flags


def _entry_run(result: Result) -> EntryRun:
    manifest, records = result.manifest, result.records
    part = f" on {len(records)} in doubt" if confirmed_run_keys(manifest) else ""
    return EntryRun(
        attack=manifest["spec"]["attack"],
        robust=Accuracy.of(rates.robust_accuracy(records), _attack_label(manifest) + part),
        stages=result.stages,
        forwards=float(records["forwards"].mean()),
        backwards=float(records["backwards"].mean()),
        seconds=float(records["seconds"].sum()),
        date=str(manifest["started"])[:10],
        hardware=hardware_name(manifest),
        key=run_key(manifest),
    )
