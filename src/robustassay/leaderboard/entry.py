"""An entry: one model under one threat, every number read off its records or marked as published by others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

import pandas as pd

from robustassay.analysis import rates, trust
from robustassay.analysis.compare import standing
from robustassay.eps import format_eps
from robustassay.evaluation import Result
from robustassay.evaluation.result import CONFIRMS
from robustassay.leaderboard.card import EntryCard

STANDARD: Final = ("autoattack", "express")
"""Attacks strong enough to stand for robust accuracy, the first choice first."""

FAMILY: Final = {"cifar10-1k": "cifar10"}
"""Samples of a dataset stand on its board."""

WEAK: Final = "No attack followed the gradient for more than one step: a real one would break more."


@final
@dataclass(frozen=True, order=True)
class Arena:
    """What entries must share to be compared."""

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
class Number:
    """An accuracy, where it comes from, and its 95 % interval where its samples are known."""

    value: float
    by: str
    low: float | None = None
    high: float | None = None
    samples: int | None = None
    external: bool = False

    @classmethod
    def of(cls, rate: rates.Rate, by: str) -> "Number":
        """Take a rate that was measured here."""
        low, high = rate.interval()
        return cls(rate.value, by, low, high, rate.total)


@final
@dataclass(frozen=True)
class Attacked:
    """What one run shows."""

    attack: Mapping[str, Any]
    robust: Number
    stages: Mapping[str, float]  # of a composed attack: the robust accuracy after each
    forwards: float  # passes an image
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
    arena: Arena
    kind: Literal["measured", "published"]
    clean: Number
    robust: Number
    best_known: Number  # the worst case over all evaluations
    flags: Mapping[str, str] = field(default_factory=dict)
    doubtful: int = 0
    attacks: tuple[Attacked, ...] = ()
    unreliable: bool = False
    corruption_error: float | None = None  # mCE, of published corruption entries that have one
    standing: pd.Series | None = field(default=None, repr=False)  # by data and sample id

    @property
    def seconds(self) -> float | None:
        """What all its evaluations took."""
        return sum(one.seconds for one in self.attacks) if self.attacks else None

    @property
    def date(self) -> str:
        """The day of the latest evaluation."""
        return max((one.date for one in self.attacks), default="")

    @property
    def hardware(self) -> str:
        """What the evaluations ran on."""
        return ", ".join(dict.fromkeys(one.hardware for one in self.attacks))


def arena_of(spec: Mapping[str, Any]) -> Arena:
    """Say where the runs of a specification compete."""
    data, threat = str(spec["data"]["name"]), spec["threat"]
    rule = threat.get("target")
    told = None if rule is None else rule if isinstance(rule, str) else str(rule)
    return Arena(FAMILY.get(data, data), threat["norm"], float(threat["eps"]), told, threat.get("query_budget"))


def measured(card: EntryCard, results: Sequence[Result]) -> Entry:
    """Make the entry of a model from all its runs under one threat; every run counts where it meets the base's samples.

    The base is the standard attack, where one was run, or else the run on most samples. A success of any other run on
    these samples is one more that fell, so that the best known accuracy can only be lower.
    """
    base = _base(results)
    own = set(base.records["sample_id"])
    parts = {
        str(result.manifest["key"]): result.records[result.records["sample_id"].isin(own)]
        for result in [base, *(other for other in results if other is not base)]
        if result.manifest["spec"]["data"] == base.manifest["spec"]["data"]
    }
    parts = {key: records for key, records in parts.items() if len(records)}
    counted = [result for result in results if str(result.manifest["key"]) in parts]
    confirmed = {key: parts[key] for key in [str(base.manifest["key"]), *_confirming(base, counted)]}
    headline, worst = rates.worst_case(confirmed), rates.worst_case(parts)
    flags = {name: text for result in counted for name, text in result.flags.items()}
    if invalid := sum(result.invalid_claims for result in counted):
        flags["invalid-claims"] = f"{invalid} claimed successes did not verify; these samples count as standing."
    if not any(_tries(result) is trust.Effort.ITERATED for result in counted):
        flags["weak-evaluation"] = WEAK
    by = _name(base) + (", confirmed" if len(confirmed) > 1 else "")
    known = Number.of(rates.robust_accuracy(worst), by if len(parts) == len(confirmed) else f"{len(parts)} runs")
    arena = arena_of(base.manifest["spec"])
    sha = str(base.manifest["spec"]["data"]["sha256"])
    stands = standing(worst)
    return Entry(
        card=card,
        arena=arena,
        kind="measured",
        clean=Number.of(rates.clean_accuracy(worst), "no attack"),
        robust=Number.of(rates.robust_accuracy(headline), by),
        best_known=_worst(known, card, arena),
        flags=flags,
        doubtful=_in_doubt(worst, flags, counted),
        attacks=tuple(_attacked(result) for result in results),
        unreliable=bool(flags.keys() - trust.HARMLESS),
        standing=stands.set_axis(pd.Index([f"{sha[:12]}/{sample}" for sample in stands.index])),
    )


def with_external(entry: Entry, accuracy: float, by: str) -> Entry:
    """Lower what is known of an entry by what somebody else measured."""
    if accuracy >= entry.best_known.value:
        return entry
    return replace(entry, best_known=Number(accuracy, by, external=True))


def _worst(known: Number, card: EntryCard, arena: Arena) -> Number:
    """Take an external accuracy under the same threat where it is lower than all that was measured here."""
    others = [one for one in card.external if (one.norm, one.eps) == (arena.norm, arena.eps)]
    lowest = min(others, key=lambda one: one.accuracy, default=None)
    if lowest is None or lowest.accuracy >= known.value or arena.target or arena.query_budget:
        return known
    return Number(lowest.accuracy, lowest.by, external=True)


def _base(results: Sequence[Result]) -> Result:
    whole = [result for result in results if CONFIRMS not in result.manifest] or list(results)
    for name in STANDARD:
        if found := [result for result in whole if _name(result) == name]:
            return max(found, key=lambda result: len(result.records))
    most = max(len(result.records) for result in whole)
    widest = [result for result in whole if len(result.records) == most]
    return min(widest, key=lambda result: result.robust_accuracy)


def _confirming(base: Result, counted: Sequence[Result]) -> list[str]:
    key = base.manifest["key"]
    return [str(one.manifest["key"]) for one in counted if key in one.manifest.get(CONFIRMS, ())]


def _in_doubt(worst: pd.DataFrame, flags: Mapping[str, str], counted: Sequence[Result]) -> int:
    """Count the standing samples that a stronger attack may still break; those it was tried on are settled."""
    settled = {s for one in counted if CONFIRMS in one.manifest for s in one.records["sample_id"]}
    return int((trust.doubtful(worst, flags.keys()) & ~worst["sample_id"].isin(settled)).sum())


def _tries(result: Result) -> trust.Effort:
    return trust.effort(result.records, _name(result).endswith("noise"))


def _attacked(result: Result) -> Attacked:
    manifest, records = result.manifest, result.records
    part = f" on {len(records)} in doubt" if CONFIRMS in manifest else ""
    hardware = manifest.get("hardware", {})
    return Attacked(
        attack=manifest["spec"]["attack"],
        robust=Number.of(rates.robust_accuracy(records), _name(result) + part),
        stages=result.stages,
        forwards=float(records["forwards"].mean()),
        backwards=float(records["backwards"].mean()),
        seconds=float(records["seconds"].sum()),
        date=str(manifest["started"])[:10],
        hardware=f"{hardware.get('device', 'unknown')} ({hardware.get('machine', 'unknown')})",
        key=str(manifest["key"]),
    )


def _name(result: Result) -> str:
    return str(result.manifest["spec"]["attack"]["name"])
