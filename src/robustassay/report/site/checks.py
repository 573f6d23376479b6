"""Checks of all runs for signs that a robust accuracy is too high, and of the records behind it."""

from collections.abc import Mapping, Sequence

from robustassay.analysis.rates import Rate
from robustassay.report import formatting
from robustassay.report.site import attack_checks
from robustassay.report.site.models import ReportedModel
from robustassay.report.site.trust_check import CheckedRuns, CheckFinding, TrustCheck
from robustassay.results.models import AttackSummary, ModelResult


def check_all(
    attacks: Sequence[AttackSummary], results: Sequence[ModelResult], models: Mapping[str, ReportedModel]
) -> tuple[TrustCheck, ...]:
    """Run every check; warnings come first."""
    runs = CheckedRuns(attacks, results, {identity: model.label for identity, model in models.items()})
    made = (
        _claims(runs),
        attack_checks.order(runs),
        attack_checks.strength(runs),
        attack_checks.evidence(runs),
        attack_checks.signs(runs),
        attack_checks.in_doubt(runs),
        _samples(runs),
        _interval_width(runs),
        _eight_bits(runs),
    )
    return tuple(sorted(made, key=lambda check: check.status != "warning"))


def _claims(runs: CheckedRuns) -> TrustCheck:
    title = "Are claimed successes real?"
    checked = (
        "Every adversarial image that an attack claims is classified again by separate code, and its distance measured."
    )
    claims = sum(attack.numbers.claims for attack in runs.attacks)
    invalid = sum(attack.numbers.invalid_claims for attack in runs.attacks)
    if not invalid:
        found = f"All {claims:,} claimed successes were verified." if claims else "No attack claimed a success."
        return TrustCheck(title, checked, "good", found)
    findings = tuple(
        CheckFinding(
            f"{runs.name(attack)}: {formatting.listed([f'{many:,} × {why}' for why, many in reasons.items()])}",
            attack.key,
        )
        for attack in runs.attacks
        if (reasons := attack.numbers.invalid)
    )
    found = f"{invalid:,} of {claims:,} claimed successes were not verified. They count as failed attacks."
    advice = (
        "Read the reasons below. An attack of your own may leave the radius; a random model needs more draws (`--eot`)."
    )
    return TrustCheck(title, checked, "warning", found, advice, findings)


def _samples(runs: CheckedRuns) -> TrustCheck:
    title = "Do all runs cover the same samples?"
    checked = (
        "The worst case over attacks is taken on the same samples only, so a run on fewer samples is left out of it."
    )
    largest: dict[str, int] = {}
    for attack in runs.attacks:
        sha256 = attack.run.spec["data"]["sha256"]
        largest[sha256] = max(largest.get(sha256, 0), attack.numbers.samples)
    counted = {attack.key for result in runs.results for attack in result.counted}
    findings = tuple(
        CheckFinding(
            f"{runs.name(attack)}: {attack.numbers.samples:,} of {wanted:,}"
            + ("" if attack.key in counted else "; not in the worst case"),
            attack.key,
        )
        for attack in runs.attacks
        if _is_partial(attack, wanted := largest[attack.run.spec["data"]["sha256"]]) or attack.key not in counted
    )
    if findings:
        verb = "covers" if len(findings) == 1 else "cover"
        found = (
            f"{formatting.count(len(findings), 'run')} {verb} fewer or other samples than the largest run on the same "
            "data."
        )
        advice = (
            "Run the command on the page of the run again, with the `--limit` of the others: finished samples are kept."
        )
        return TrustCheck(title, checked, "warning", found, advice, findings)
    sizes = formatting.listed([f"{size:,}" for size in sorted(set(largest.values()))])
    found = (
        f"Every run covers {sizes} samples." if len(largest) == 1 else "All runs on one dataset cover the same samples."
    )
    part = sum(bool(attack.run.confirms) for attack in runs.attacks)
    if part:
        found += f" Runs on the samples that others left are not counted ({part:,})."
    return TrustCheck(title, checked, "good", found)


def _is_partial(attack: AttackSummary, wanted: int) -> bool:
    """Say whether a run covers fewer samples than the largest one; runs on what others left do so by design."""
    return attack.numbers.samples < wanted and not attack.run.confirms


def _interval_width(runs: CheckedRuns) -> TrustCheck:
    title = "Are there enough samples?"
    checked = "A robust accuracy of few samples is uncertain; its 95 % interval (Wilson) says by how much."
    if not runs.results:
        return TrustCheck(title, checked, "warning", "No run has a record yet.", "Run the evaluation to its end.")
    widest = max((result.robust for result in runs.results), key=_width)
    found = (
        f"With {formatting.count(widest.total, 'sample')}, the widest interval spans "
        f"{formatting.points(widest.interval())} points."
    )
    advice = "Four times as many samples (`--limit`) would halve it."
    return TrustCheck(title, checked, "note", found, advice)


def _width(rate: Rate) -> float:
    low, high = rate.interval()
    return high - low


def _eight_bits(runs: CheckedRuns) -> TrustCheck:
    title = "Do successes survive an image file?"
    checked = "Each success is rounded to 8 bits, as in an image file, and classified again."
    kept = Rate(
        sum(attack.numbers.eight_bits.count for attack in runs.attacks),
        sum(attack.numbers.eight_bits.total for attack in runs.attacks),
    )
    if not kept.total:
        return TrustCheck(title, checked, "good", "No attack succeeded, so there was nothing to round.")
    share = f"{kept.count:,} of {kept.total:,} successes ({formatting.percent(kept.value)})"
    if kept.count == kept.total:
        return TrustCheck(title, checked, "good", f"{share} are still adversarial after rounding.")
    found = f"{share} are still adversarial after rounding. The others count as successes all the same."
    advice = "Nothing to do, unless your attacker must save images to files."
    return TrustCheck(title, checked, "note", found, advice)
