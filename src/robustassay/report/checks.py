"""What to trust: each check looks at all runs and says in a sentence what it saw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.analysis.rates import Rate
from robustassay.analysis.trust import Upset
from robustassay.report import formatting
from robustassay.report.models import ReportedModel
from robustassay.report.ranking import Outcome, Standing

_UNLIKELY: Final = 0.05

Verdict = Literal["good", "note", "look"]


@final
@dataclass(frozen=True)
class Finding:
    """One run that a check points at."""

    text: str
    key: str


@final
@dataclass(frozen=True)
class Check:
    """What one check saw: all good, something to know, or something to look at."""

    title: str
    verdict: Verdict
    text: str
    findings: tuple[Finding, ...] = ()


def checks(
    runs: Sequence[Outcome], standings: Sequence[Standing], models: Mapping[str, ReportedModel]
) -> tuple[Check, ...]:
    """Run every check; what needs a look comes first."""
    names = {one.key: f"{models[one.run.model_id].label}, {one.run.threat}, {one.label}" for one in runs}
    made = (
        _claims(runs, names),
        _order(standings, models),
        _strength(standings, models),
        _flags(runs, names),
        _doubts(standings, models),
        _samples(runs, standings, names),
        _precision(standings),
        _eight_bits(runs),
    )
    return tuple(sorted(made, key=lambda check: check.verdict != "look"))


def _claims(runs: Sequence[Outcome], names: Mapping[str, str]) -> Check:
    claims = sum(run.summary.claims for run in runs)
    invalid = sum(run.summary.invalid_claims for run in runs)
    if not invalid:
        text = f"Each of the {claims:,} claimed successes was confirmed on a fresh forward pass."
        return Check("Claims", "good", text if claims else "No attack claimed a success.")
    findings = tuple(
        Finding(
            f"{names[run.key]}: {formatting.listed([f'{many:,} × {why}' for why, many in reasons.items()])}", run.key
        )
        for run in runs
        if (reasons := run.summary.invalid)
    )
    text = f"{invalid:,} of {claims:,} claimed successes did not verify. None of them is counted anywhere."
    return Check("Claims", "look", text, findings)


def _order(standings: Sequence[Standing], models: Mapping[str, ReportedModel]) -> Check:
    pairs = sum(standing.ranking.pairs for standing in standings)
    findings = tuple(
        Finding(_upset(upset, standing, models[standing.model_id].label), upset.stronger)
        for standing in standings
        for upset in standing.ranking.upsets
    )
    if findings:
        text = (
            "An attack broke fewer samples than a weaker one: it may have failed, or the model misleads its gradients. "
            "Where no other attack did its work, the robust accuracy is too high."
        )
        return Check("Order of attacks", "look", text, findings)
    if not pairs:
        text = "No attack ran beside a weaker one on the same samples, so none could be caught failing."
        return Check("Order of attacks", "note", text)
    text = f"No attack lost to a weaker one on the same samples ({formatting.count(pairs, 'pair')} compared)."
    return Check("Order of attacks", "good", text)


def _upset(upset: Upset, standing: Standing, model: str) -> str:
    labels = {outcome.key: outcome.label for outcome in standing.outcomes}
    strong, weak = labels[upset.stronger], labels[upset.weaker]
    verdict = "attack may have failed" if upset.chance < _UNLIKELY else "attack may have failed, or this is chance"
    chance = f"p = {upset.chance:.2g}" if upset.chance >= 0.001 else "p < 0.001"
    return (
        f"{model}, {standing.threat}, {strong}: {verdict} ({chance}). Of {formatting.count(upset.samples, 'sample')}, "
        f"{weak} alone broke {upset.only_weaker:,} and this attack alone {upset.only_stronger:,}"
    )


def _strength(standings: Sequence[Standing], models: Mapping[str, ReportedModel]) -> Check:
    untried = [standing for standing in standings if standing.robust.count and not standing.has_iterated_attack]
    if not untried:
        text = "Every model that holds out was tried by an attack that follows the gradient for many steps."
        return Check("Strength", "good", text)
    text = "No attack followed the gradient for many steps, so these robust accuracies may be far too high: add pgd."
    findings = (
        Finding(
            f"{models[standing.model_id].label}, {standing.threat}: "
            f"{formatting.listed([outcome.label for outcome in standing.outcomes])}",
            standing.outcomes[0].key,
        )
        for standing in untried
    )
    return Check("Strength", "look", text, tuple(findings))


def _flags(runs: Sequence[Outcome], names: Mapping[str, str]) -> Check:
    findings = tuple(
        Finding(f"{names[run.key]}: {name}. {text}", run.key) for run in runs for name, text in run.flags.items()
    )
    if not findings:
        return Check("Flags", "good", "No model gave a sign that attacks on it fail unseen.")
    return Check("Flags", "look", "Some models gave signs that attacks on them may fail unseen.", findings)


def _doubts(standings: Sequence[Standing], models: Mapping[str, ReportedModel]) -> Check:
    findings = tuple(
        Finding(
            f"{models[standing.model_id].label}, {standing.threat}: "
            f"{standing.doubtful:,} of {formatting.count(standing.robust.count, 'standing sample')}",
            standing.outcomes[0].key,
        )
        for standing in standings
        if standing.doubtful
    )
    if not findings:
        return Check("Close calls", "good", "Every sample that stands kept clear of the boundary under every attack.")
    text = (
        "Some samples stand by a hair, or were not moved at all, or their model is flagged: a stronger attack may "
        "still break them."
    )
    return Check("Close calls", "note", text, findings)


def _samples(runs: Sequence[Outcome], standings: Sequence[Standing], names: Mapping[str, str]) -> Check:
    largest: dict[str, int] = {}
    for run in runs:
        sha256 = run.run.spec["data"]["sha256"]
        largest[sha256] = max(largest.get(sha256, 0), run.summary.samples)
    counted = {run.key for standing in standings for run in standing.counted}
    findings = tuple(
        Finding(
            f"{names[run.key]}: {run.summary.samples:,} of {wanted:,}"
            + ("" if run.key in counted else "; left out of the headline"),
            run.key,
        )
        for run in runs
        if run.summary.samples < (wanted := largest[run.run.spec["data"]["sha256"]]) or run.key not in counted
    )
    if findings:
        text = (
            "Some runs cover fewer or other samples than the largest on the same data. "
            "The headline compares attacks on the same samples only."
        )
        return Check("Samples", "look", text, findings)
    sizes = formatting.listed([f"{size:,}" for size in sorted(set(largest.values()))])
    each = (
        f"Every run covers {sizes} samples." if len(largest) == 1 else "All runs on one dataset cover the same samples."
    )
    return Check("Samples", "good", each)


def _precision(standings: Sequence[Standing]) -> Check:
    if not standings:
        return Check("Precision", "look", "No run has a record yet.")
    widest = max(standings, key=lambda standing: _width(standing.robust))
    text = (
        f"With {formatting.count(widest.robust.total, 'sample')}, the widest 95 % interval of the headline spans "
        f"{formatting.points(widest.robust.interval())} points; four times as many samples would halve it."
    )
    return Check("Precision", "note", text)


def _width(rate: Rate) -> float:
    low, high = rate.interval()
    return high - low


def _eight_bits(runs: Sequence[Outcome]) -> Check:
    kept = Rate(sum(run.summary.eight_bits.count for run in runs), sum(run.summary.eight_bits.total for run in runs))
    if not kept.total:
        return Check("8 bits", "good", "There is no success that rounding to 8 bits could undo.")
    text = (
        f"{kept.count:,} of {kept.total:,} successes ({formatting.percent(kept.value)}) survive rounding to 8 bits, "
        "as an image file would do."
    )
    return Check("8 bits", "good" if kept.count == kept.total else "note", text)
