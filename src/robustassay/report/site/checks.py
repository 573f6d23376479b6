"""Checks of all runs for signs that a robust accuracy is too high; each says in a sentence what it found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.analysis.rates import Rate
from robustassay.analysis.trust import OrderViolation
from robustassay.report import formatting
from robustassay.report.site.models import ReportedModel
from robustassay.results.models import AttackSummary, ModelResult

_SIGNIFICANT: Final = 0.05

CheckStatus = Literal["good", "note", "warning"]
"""No warning, something to know, or a warning."""


@final
@dataclass(frozen=True)
class CheckFinding:
    """A sentence about one run, and the key of that run."""

    text: str
    key: str


@final
@dataclass(frozen=True)
class TrustCheck:
    """What one check found."""

    title: str
    status: CheckStatus
    text: str
    findings: tuple[CheckFinding, ...] = ()


def check_all(
    attacks: Sequence[AttackSummary], results: Sequence[ModelResult], models: Mapping[str, ReportedModel]
) -> tuple[TrustCheck, ...]:
    """Run every check; warnings come first."""
    names = {one.key: f"{models[one.run.model_id].label}, {one.run.threat}, {one.label}" for one in attacks}
    made = (
        _claims(attacks, names),
        _order(results, models),
        _strength(results, models),
        _evidence(results, models),
        _flags(attacks, names),
        _in_doubt(results, models),
        _samples(attacks, results, names),
        _interval_width(results),
        _eight_bits(attacks),
    )
    return tuple(sorted(made, key=lambda check: check.status != "warning"))


def _claims(attacks: Sequence[AttackSummary], names: Mapping[str, str]) -> TrustCheck:
    claims = sum(attack.numbers.claims for attack in attacks)
    invalid = sum(attack.numbers.invalid_claims for attack in attacks)
    if not invalid:
        text = f"All {claims:,} claimed successes were verified on a fresh forward pass."
        return TrustCheck("Claims", "good", text if claims else "No attack claimed a success.")
    findings = tuple(
        CheckFinding(
            f"{names[attack.key]}: {formatting.listed([f'{many:,} × {why}' for why, many in reasons.items()])}",
            attack.key,
        )
        for attack in attacks
        if (reasons := attack.numbers.invalid)
    )
    text = f"{invalid:,} of {claims:,} claimed successes were not verified. They count as failed attacks."
    return TrustCheck("Claims", "warning", text, findings)


def _order(results: Sequence[ModelResult], models: Mapping[str, ReportedModel]) -> TrustCheck:
    pairs = sum(result.order.pairs for result in results)
    findings = tuple(
        CheckFinding(_violation(violation, result, models[result.model_id].label), violation.stronger)
        for result in results
        for violation in result.order.violations
    )
    if findings:
        text = (
            "An attack broke fewer samples than a weaker one: the attack may have failed, or gradients mislead. "
            "The robust accuracy may be too high."
        )
        return TrustCheck("Stronger attacks break more", "warning", text, findings)
    if not pairs:
        text = "No attack ran beside a weaker one on the same samples, so this was not checked."
        return TrustCheck("Stronger attacks break more", "note", text)
    text = (
        f"No attack broke fewer samples than a weaker one on the same samples ({formatting.count(pairs, 'pair')} "
        "compared)."
    )
    return TrustCheck("Stronger attacks break more", "good", text)


def _violation(violation: OrderViolation, result: ModelResult, model: str) -> str:
    labels = {attack.key: attack.label for attack in result.attacks}
    strong, weak = labels[violation.stronger], labels[violation.weaker]
    explanation = "attack may have failed" + ("" if violation.p_value < _SIGNIFICANT else ", or this is chance")
    p_value = f"p = {violation.p_value:.2g}" if violation.p_value >= 0.001 else "p < 0.001"
    return (
        f"{model}, {result.threat}, {strong}: {explanation} ({p_value}). "
        f"Of {formatting.count(violation.samples, 'sample')}, "
        f"{weak} alone broke {violation.only_weaker:,} and this attack alone {violation.only_stronger:,}"
    )


def _strength(results: Sequence[ModelResult], models: Mapping[str, ReportedModel]) -> TrustCheck:
    weak = [result for result in results if result.robust.count and not result.has_iterated_attack]
    if not weak:
        text = (
            "Every model with a robust accuracy above zero was tested with an attack that follows the gradient for "
            "many steps."
        )
        return TrustCheck("Strength", "good", text)
    text = "No attack followed the gradient for many steps, so these robust accuracies may be far too high: add pgd."
    findings = (
        CheckFinding(
            f"{models[result.model_id].label}, {result.threat}: "
            f"{formatting.listed([attack.label for attack in result.attacks])}",
            result.attacks[0].key,
        )
        for result in weak
    )
    return TrustCheck("Strength", "warning", text, tuple(findings))


def _evidence(results: Sequence[ModelResult], models: Mapping[str, ReportedModel]) -> TrustCheck:
    weak = [result for result in results if not result.evidence.earned]
    if not weak:
        text = "Every number was earned by AutoAttack, express or adaptive attacks that passed their self-test."
        return TrustCheck("Evidence", "good", text)
    findings = tuple(
        CheckFinding(f"{models[result.model_id].label}, {result.threat}: {result.evidence.summary}", result.first.key)
        for result in weak
    )
    failed = any(result.evidence.self_test.examined and not result.evidence.self_test.passed for result in weak)
    text = (
        "Some numbers are upper bounds only: by attacks weaker than AutoAttack or express, or without a passed "
        "self-test, in which an attack must find adversarial examples that were planted in the model."
    )
    return TrustCheck("Evidence", "warning" if failed else "note", text, findings)


def _flags(attacks: Sequence[AttackSummary], names: Mapping[str, str]) -> TrustCheck:
    findings = tuple(
        CheckFinding(f"{names[attack.key]}: {name}. {text}", attack.key)
        for attack in attacks
        for name, text in attack.flags.items()
    )
    if not findings:
        return TrustCheck("Flags", "good", "No model shows a sign that attacks on it fail unnoticed.")
    return TrustCheck("Flags", "warning", "Some models show signs that attacks on them may fail unnoticed.", findings)


def _in_doubt(results: Sequence[ModelResult], models: Mapping[str, ReportedModel]) -> TrustCheck:
    findings = tuple(
        CheckFinding(
            f"{models[result.model_id].label}, {result.threat}: "
            f"{result.in_doubt:,} of {formatting.count(result.robust.count, 'robust sample')}",
            result.attacks[0].key,
        )
        for result in results
        if result.in_doubt
    )
    if not findings:
        text = "No sample is in doubt: every robust sample kept a clear margin, and attacks did reduce it."
        return TrustCheck("Samples in doubt", "good", text)
    text = (
        "A stronger attack may still break some robust samples: their margin is almost zero, or no attack reduced it, "
        "or their model is flagged."
    )
    return TrustCheck("Samples in doubt", "note", text, findings)


def _samples(attacks: Sequence[AttackSummary], results: Sequence[ModelResult], names: Mapping[str, str]) -> TrustCheck:
    largest: dict[str, int] = {}
    for attack in attacks:
        sha256 = attack.run.spec["data"]["sha256"]
        largest[sha256] = max(largest.get(sha256, 0), attack.numbers.samples)
    counted = {attack.key for result in results for attack in result.counted}
    findings = tuple(
        CheckFinding(
            f"{names[attack.key]}: {attack.numbers.samples:,} of {wanted:,}"
            + ("" if attack.key in counted else "; not in the worst case"),
            attack.key,
        )
        for attack in attacks
        if attack.numbers.samples < (wanted := largest[attack.run.spec["data"]["sha256"]]) or attack.key not in counted
    )
    if findings:
        text = (
            "Some runs cover fewer or other samples than the largest run on the same data. "
            "The worst case is taken over attacks on the same samples only."
        )
        return TrustCheck("Samples", "warning", text, findings)
    sizes = formatting.listed([f"{size:,}" for size in sorted(set(largest.values()))])
    each = (
        f"Every run covers {sizes} samples." if len(largest) == 1 else "All runs on one dataset cover the same samples."
    )
    return TrustCheck("Samples", "good", each)


def _interval_width(results: Sequence[ModelResult]) -> TrustCheck:
    if not results:
        return TrustCheck("Width of intervals", "warning", "No run has a record yet.")
    widest = max(results, key=lambda result: _width(result.robust))
    text = (
        f"With {formatting.count(widest.robust.total, 'sample')}, the widest 95 % interval of a robust accuracy spans "
        f"{formatting.points(widest.robust.interval())} points; four times as many samples would halve it."
    )
    return TrustCheck("Width of intervals", "note", text)


def _width(rate: Rate) -> float:
    low, high = rate.interval()
    return high - low


def _eight_bits(attacks: Sequence[AttackSummary]) -> TrustCheck:
    kept = Rate(
        sum(attack.numbers.eight_bits.count for attack in attacks),
        sum(attack.numbers.eight_bits.total for attack in attacks),
    )
    if not kept.total:
        return TrustCheck("8 bits", "good", "No attack succeeded, so rounding to 8 bits changes nothing.")
    text = (
        f"{kept.count:,} of {kept.total:,} successes ({formatting.percent(kept.value)}) are still adversarial after "
        "rounding to 8 bits, as in an image file."
    )
    return TrustCheck("8 bits", "good" if kept.count == kept.total else "note", text)
