"""Checks that the attacks were strong enough, and that nothing kept them from succeeding."""

from typing import Final

from robustassay.analysis.trust import OrderViolation
from robustassay.report import formatting
from robustassay.report.site.run_role import own_flags
from robustassay.report.site.trust_check import CheckedRuns, CheckFinding, TrustCheck
from robustassay.results.identity import limited_to_queries
from robustassay.results.models import ModelResult

_SIGNIFICANT: Final = 0.05


def order(runs: CheckedRuns) -> TrustCheck:
    """Compare attacks of many gradient steps with weaker ones on the same samples."""
    title = "Do strong attacks break more than weak ones?"
    checked = (
        "An attack of many gradient steps should break at least as many samples as a weaker one: noise, a single step, "
        "or an attack without gradients. If it breaks fewer, it failed, or the gradients of the model mislead it."
    )
    pairs = sum(result.order.pairs for result in runs.results)
    findings = tuple(
        CheckFinding(_violation(violation, result, runs), violation.stronger)
        for result in runs.results
        for violation in result.order.violations
    )
    if findings:
        found = (
            f"{formatting.count(len(findings), 'attack')} broke fewer samples than a weaker one: the robust accuracy "
            "may be too high."
        )
        advice = "Look for masked gradients with `assay doctor MODEL`, or give the attack more steps."
        return TrustCheck(title, checked, "warning", found, advice, findings)
    if not pairs:
        found = "Nothing to compare: no model was attacked with a strong and a weak attack under the same threat."
        advice = "Evaluate with both to have this checked: `--attack fgsm pgd`."
        return TrustCheck(title, checked, "note", found, advice)
    compared = formatting.count(pairs, "pair")
    found = f"No attack broke fewer samples than a weaker one on the same samples ({compared} compared)."
    return TrustCheck(title, checked, "good", found)


def _violation(violation: OrderViolation, result: ModelResult, runs: CheckedRuns) -> str:
    labels = {attack.key: attack.label for attack in result.attacks}
    strong, weak = labels[violation.stronger], labels[violation.weaker]
    explanation = "attack may have failed" + ("" if violation.p_value < _SIGNIFICANT else ", or this is chance")
    p_value = f"p = {violation.p_value:.2g}" if violation.p_value >= 0.001 else "p < 0.001"
    return (
        f"{runs.about(result)}, {strong}: {explanation} ({p_value}). "
        f"Of {formatting.count(violation.samples, 'sample')}, "
        f"{weak} alone broke {violation.only_weaker:,} and this attack alone {violation.only_stronger:,}"
    )


def strength(runs: CheckedRuns) -> TrustCheck:
    """Look for robust accuracies that no attack of many gradient steps has tested."""
    title = "Was a strong attack tried?"
    checked = (
        "A robust accuracy above zero means little until an attack has followed the gradient for many steps. Threats "
        "that allow queries only are left out."
    )
    weak = [result for result in runs.results if result.only_weak_attacks]
    if not weak:
        return TrustCheck(title, checked, "good", "Every model was tested with such an attack, or has no sample left.")
    found = "No attack followed the gradient for many steps, so these robust accuracies may be far too high."
    findings = tuple(
        CheckFinding(
            f"{runs.about(result)}: {formatting.listed([attack.label for attack in result.attacks])}",
            result.attacks[0].key,
        )
        for result in weak
    )
    return TrustCheck(title, checked, "warning", found, "Add one: `--attack express`, or pgd.", findings)


def evidence(runs: CheckedRuns) -> TrustCheck:
    """Look for numbers that are upper bounds only."""
    title = "Have strong attacks passed their self-test?"
    checked = (
        "AutoAttack, express or adaptive attacks must have run. In a self-test they must have found adversarial "
        "examples that were planted in the model."
    )
    weak = [result for result in runs.results if result.robust.count and not result.evidence.earned]
    if not weak:
        found = "Every number was earned by such attacks, or is zero."
        return TrustCheck(title, checked, "good", found)
    findings = tuple(
        CheckFinding(f"{runs.about(result)}: {result.evidence.summary}", result.first.key) for result in weak
    )
    failed = any(result.evidence.self_test.examined and not result.evidence.self_test.passed for result in weak)
    verb = "is an upper bound" if len(weak) == 1 else "are upper bounds"
    found = f"{len(weak):,} of {formatting.count(len(runs.results), 'number')} {verb}: a stronger attack may lower it."
    by_queries = all(limited_to_queries(result.first.manifest) for result in weak)
    advice = (
        "Add a second attack without gradients, such as `--attack square nes`."
        if by_queries
        else "Evaluate with `--attack express`; where a self-test failed, with `--adaptive auto`."
    )
    return TrustCheck(title, checked, "warning" if failed else "note", found, advice, findings)


def signs(runs: CheckedRuns) -> TrustCheck:
    """Look for signs that attacks on a model fail unnoticed."""
    title = "Could attacks have failed unnoticed?"
    checked = (
        "Each model and each run is examined for signs of masked gradients: gradients that are missing, zero or wrong, "
        "outputs that are squashed, alarms of the doctor, a failed self-test."
    )
    flagged = [result for result in runs.results if any(own_flags(attack) for attack in result.counted)]
    standing = [result for result in flagged if result.robust.count]
    if not flagged:
        return TrustCheck(title, checked, "good", "No model and no run shows one.")
    if not standing:
        names = formatting.listed(list(dict.fromkeys(runs.labels[result.model_id] for result in flagged)))
        found = f"Signs were seen in {names}. Every sample was broken all the same, and zero cannot be too high."
        return TrustCheck(title, checked, "good", found)
    findings = tuple(
        CheckFinding(f"{runs.name(attack)}: {formatting.flag(name)}. {text}", attack.key)
        for result in standing
        for attack in result.counted
        for name, text in own_flags(attack).items()
    )
    found = (
        f"Signs were seen in {formatting.count(len(standing), 'model')} with samples left: these may be fewer in truth."
    )
    advice = "Evaluate these models with `--adaptive auto`, which diagnoses the model and attacks around the cause."
    return TrustCheck(title, checked, "warning", found, advice, findings)


def in_doubt(runs: CheckedRuns) -> TrustCheck:
    """Count the unbroken samples that a stronger attack may still break."""
    title = "Are robust samples far from falling?"
    checked = (
        "A robust sample is in doubt if it falls to AutoAttack with an estimated probability above 1 %, if no attack "
        "reduced its margin, or if its model shows signs of masked gradients."
    )
    findings = tuple(
        CheckFinding(
            f"{runs.about(result)}: {result.in_doubt:,} of {formatting.count(result.robust.count, 'robust sample')}",
            (result.counted or result.attacks)[-1].key,  # the strongest
        )
        for result in runs.results
        if result.in_doubt
    )
    if not findings:
        found = "No sample is in doubt: every robust sample is unlikely to fall, and attacks did reduce its margin."
        return TrustCheck(title, checked, "good", found)
    total = sum(result.in_doubt for result in runs.results)
    verb = "is" if total == 1 else "are"
    found = f"{formatting.count(total, 'robust sample')} {verb} in doubt: a stronger attack may still break them."
    advice = "Attack them again with AutoAttack: `--confirm`."
    return TrustCheck(title, checked, "note", found, advice, findings)
