"""Dong et al.'s five findings (their section 5.3), tested on the runs.

Two sides are compared on the samples that both have, by an exact McNemar test, or by a sign test of distances. The
p-values within a finding are Holm-corrected. Where the samples are too few to decide, the verdict is "cannot be said".
"""

from dataclasses import replace
from itertools import product
from typing import Final

from robustassay.analysis.compare import Paired, pair
from robustassay.eps import format_norm, round_eps
from robustassay.studies.dong2020.attacks import ATTACKS
from robustassay.studies.dong2020.comparisons import (
    LEVEL,
    compare,
    every,
    most,
    parts_of,
    points,
    rate_of,
    versus,
)
from robustassay.studies.dong2020.crossings import SHOWN, crossings, paired_at
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.dong2020.query_findings import randomized, transformed
from robustassay.studies.page import Finding, Verdict, combined, comma_list, either

ALIKE: Final = 0.05
"""Two attacks perform alike if the interval of their difference stays within this; the paper's own differences between
BIM, MIM and DIM in Table 3 are at most 3 points."""


BELOW, ABOVE = 0.05, 0.15
"""The budgets of the paper's example: TRADES is above PGD-AT at the first one, and below it at the second."""


def findings(measured: DongMeasurements) -> list[Finding]:
    """Test all five; texts are for people, so they name norms as such."""
    tests = _crossings, _training, randomized, transformed, _transfer
    return [
        replace(
            found,
            reasons=tuple(map(format_norm, found.reasons)),
            measured=found.measured and format_norm(found.measured),
            because=format_norm(found.because),
        )
        for found in (test(measured) for test in tests)
    ]


def _crossings(measured: DongMeasurements) -> Finding:
    """Look for two defenses each of which is more robust than the other somewhere on the same curve."""
    claim = "Which of two defenses is more robust depends on the perturbation budget or the attack strength"
    published = (
        'no number: "the results in many different scenarios show the similar phenomenon" (section 5.3)'
        if measured.photographs
        else "white-box: TRADES above PGD-AT at eps 0.05, below it at 0.15 (text, Fig. 1)"
    )
    found = crossings(measured)
    if found is None:
        return Finding(1, claim, "cannot be said", ("No two rows have curves against the same attack.",), published,
                       because="no two rows have curves against the same attack")  # fmt: skip
    verdict: Verdict = (
        "holds" if found.sure else "does not hold" if found.differ and not found.crossed else "cannot be said"
    )
    examples = _trades_and_pgd(measured)
    low, high = found.samples
    span = f"n = {low:,}" if low == high else f"n = {low:,} to {high:,}"
    summary = f"{len(found.sure)} of {found.pairs} pairs of curves cross significantly in both directions ({span})"
    summary += f", {found.of_paper} of them between two rows of the paper" * bool(found.sure)
    because = {
        "holds": "each side is significantly more robust somewhere on the same curve"
        + ", but for no two rows of the paper" * (not found.of_paper)
        + "; the paper's own example is not seen here" * (not _example_is_seen(examples)),
        "does not hold": "curves differ significantly, and none cross",
        "cannot be said": "no crossing is significant at both ends",
    }[verdict]
    more = [f"... and {len(found.sure) - SHOWN} more."] if len(found.sure) > SHOWN else []
    detail = f"{summary}; {found.crossed} cross at all ({found.tests} paired tests, Holm-corrected)."
    said = [
        f"The paper's example, {attack} at eps {where:g}: {versus('TRADES', 'PGD-AT', paired, paired.chance)} "
        "(uncorrected)."
        for attack, where, paired in examples
    ]
    reasons = (detail, *said, *found.sure[:SHOWN], *more)
    return Finding(1, claim, verdict, reasons, published, summary, because)


def _trades_and_pgd(measured: DongMeasurements) -> list[tuple[str, float, Paired]]:
    """Compare the two rows that the paper names, at the budgets that it names, by attack."""
    if measured.photographs:
        return []
    norm, found = measured.norms[0], []
    for attack in (attack for attack in ATTACKS if attack.group == "white-box"):
        one, two = (measured.over_eps(row, attack, norm) for row in ("TRADES", "PGD-AT"))
        for where in (BELOW, ABOVE):
            paired = None if one is None or two is None else paired_at(one, two, where)
            if paired is not None:
                found.append((attack.name, where, paired))
    return found


def _example_is_seen(examples: list[tuple[str, float, Paired]]) -> bool:
    """Say whether TRADES is significantly above PGD-AT and then below it; also where nothing was compared."""
    sure = {(attack, where): paired.difference for attack, where, paired in examples if paired.chance < LEVEL}
    return not examples or any(
        sure.get((attack, BELOW), 0.0) > 0 > sure.get((attack, ABOVE), 0.0) for attack, *_ in examples
    )


def _training(measured: DongMeasurements) -> Finding:
    """Compare adversarially trained defenses with all others: worst case of all white-box attacks, under each norm."""
    claim = "The most robust models come from adversarial training, also under L2, and cost clean accuracy"
    published = (
        "FD above all others in Fig. 7 (no number); clean 64.3% against 78.0%"
        if measured.photographs
        else "BIM, L∞ 8/255: TRADES 56.8%, PGD-AT 48.3%, best other (Convex) 34.3%; clean 84.9% and 87.3% against 92.6%"
    )
    trained = measured.of_role("adversarial")
    others = [row for row in measured.labels if row not in trained]
    natural = next(iter(measured.of_role("natural")), None)
    if not trained or not others or natural is None:
        why = (
            "no adversarially trained row is among the models"
            if not trained
            else "it needs other rows, and a natural one"
        )
        return Finding(2, claim, "cannot be said", (f"{why[0].upper()}{why[1:]}.",), published, because=why)
    tests: dict[str, list[tuple[str, str, str, Paired]]] = {}
    ours = []
    for norm in measured.norms:
        robust = {row: found for row in measured.labels if (found := measured.robust_to_all(row, norm, "white-box"))}
        for one, two in product(trained, others):
            if one in robust and two in robust:
                where = f"{norm.name} {round_eps(norm.eps)}, worst case of {comma_list(robust[one][1])}"
                less = f" (under {comma_list(robust[two][1])} only)" * (robust[two][1] != robust[one][1])
                paired = pair(robust[one][0], robust[two][0])
                tests.setdefault(norm.name, []).append((where, one, two + less, paired))
        rest = [row for row in others if row in robust]
        if rest and norm.name in tests:
            best = max(rest, key=lambda row: float(robust[row][0].mean()))
            shown = [f"{row} {rate_of(robust[row][0])}" for row in trained if row in robust]
            n = len(robust[best][0])
            fewer = [f"{row}: {len(robust[row][0]):,}" for row in rest if len(robust[row][0]) < n]
            sizes = f"n = {n:,}" + f" ({', '.join(fewer)})" * bool(fewer)
            where = f"{norm.name}, worst case of {comma_list(robust[best][1])}"
            ours.append(f"{where}: {', '.join(shown)}, best other ({best}) {rate_of(robust[best][0])}, {sizes}")
    cost = _accuracy_cost(measured, natural, trained)
    compared = compare([test for group in tests.values() for test in group])
    reasons = [one.sentence for one in compared]
    reasons += [f"Clean images: {versus(natural, row, paired, paired.chance)}." for row, paired in cost.items()]
    if set(tests) != {norm.name for norm in measured.norms} or not cost:
        why = f"it needs white-box runs under both norms, of {natural} among others"
        return Finding(2, claim, "cannot be said", (*reasons, f"{why[0].upper()}{why[1:]}."), published, because=why)
    costly: Verdict = (
        "holds" if all(paired.difference > 0 and paired.chance < LEVEL for paired in cost.values())
        else "does not hold" if any(paired.difference < 0 and paired.chance < LEVEL for paired in cost.values())
        else "cannot be said"
    )  # fmt: skip
    parts = {
        norm: every([one for one in compared if one.where.startswith(f"{norm} ")]) for norm in tests
    } | {"cost in clean accuracy": costly}  # fmt: skip
    clean = ", ".join(f"{row} {points(-paired.difference)} points clean" for row, paired in cost.items())
    return Finding(2, claim, combined(list(parts.values())), tuple(reasons), published, f"{'; '.join(ours)}; {clean}",
                   parts_of(parts))  # fmt: skip


def _accuracy_cost(measured: DongMeasurements, natural: str, trained: list[str]) -> dict[str, Paired]:
    """Compare the natural model with adversarially trained ones on clean images."""
    known = measured.clean(natural)
    own = {row: measured.clean(row) for row in trained}
    return {} if known is None else {row: pair(known[1], clean[1]) for row, clean in own.items() if clean is not None}


def _transfer(measured: DongMeasurements) -> Finding:
    """Compare MIM and DIM with BIM, all from the same substitute, on each defense."""
    published = (
        "MIM and DIM give lower accuracy than BIM (Fig. 8, no number)"
        if measured.photographs
        else "L∞ 8/255: MIM − BIM −1.0 to +1.2 points, DIM − BIM −1.7 to +3.0 points (Table 3)"
    )
    alike = "Transfer-based attacks (BIM, MIM and DIM) perform alike"
    claim = "MIM and DIM transfer better than BIM" if measured.photographs else alike
    by_name = {attack.name: attack for attack in ATTACKS if attack.group == "transfer"}
    tests = []
    for norm, row in product(measured.norms, measured.labels):
        plain = measured.robust_samples(row, by_name["BIM"], norm)
        for name in ("MIM", "DIM"):
            recent = measured.robust_samples(row, by_name[name], norm)
            if plain is not None and recent is not None:
                where = f"{row}, {norm.name} {round_eps(norm.eps)}"
                tests.append((where, "under BIM", f"under {name}", pair(plain, recent)))
    if not tests:
        why = "no transfer runs of BIM and of MIM or DIM"
        return Finding(5, claim, "cannot be said", (f"{why[0].upper()}{why[1:]}.",), published, because=why)
    compared = compare(tests)
    sizes = sorted({paired.samples for *_, paired in tests})
    ends = [points(change) for change in sorted(-one.difference for one in compared)]
    ends_to = f"{ends[0]} to {ends[-1]} points"
    summary = f"MIM or DIM − BIM {ends_to} over {len(tests)} comparisons, n = {either(sizes)}"
    reasons = tuple(one.sentence for one in compared)
    if measured.photographs:
        better, worse = sum(one.better for one in compared), sum(one.worse for one in compared)
        because = f"of {len(compared)} comparisons with BIM {better} have significantly lower accuracy, {worse} higher"
        return Finding(5, claim, most(compared), reasons, published, summary, because)
    wide = sum(max(map(abs, paired.interval())) > ALIKE for *_, paired in tests)
    differ = [one for one in compared if one.chance < LEVEL and abs(one.difference) > ALIKE]
    verdict: Verdict = "does not hold" if differ else "cannot be said" if wide else "holds"
    limit, reach = f"{100 * ALIKE:.0f} points", "reaches" if wide == 1 else "reach"
    because = {
        "holds": f"every interval lies within {limit}",
        "does not hold": f"{len(differ)} of {len(compared)} differences are significant and above {limit}",
        "cannot be said": f"{wide} of {len(tests)} intervals {reach} beyond {limit}, no significant difference does",
    }[verdict]
    return Finding(5, claim, verdict, reasons, published, summary, because)
