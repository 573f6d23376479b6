"""Dong et al.'s five findings (their section 5.3), tested on the runs.

Two sides are compared on the samples that both have, by an exact McNemar test, or by a sign test of distances. The
p-values within a finding are Holm-corrected. Where the samples are too few to decide, the verdict is "cannot be said".
"""

from dataclasses import replace
from itertools import product
from typing import Final

from robustassay.analysis.compare import Paired, pair
from robustassay.eps import format_norm, round_eps
from robustassay.studies.dong2020.attacks import ATTACKS, QUERY_GROUPS
from robustassay.studies.dong2020.comparisons import (
    LEVEL,
    compare,
    compare_distances,
    every,
    most,
    points,
    rate_of,
    versus,
)
from robustassay.studies.dong2020.crossings import SHOWN, crossings, paired_at
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.dong2020.settings import FULL
from robustassay.studies.page import Finding, Verdict, combined, comma_list

ALIKE: Final = 0.05
"""Two attacks perform alike if the interval of their difference stays within this; the paper's own differences between
BIM, MIM and DIM in Table 3 are at most 3 points."""

MUCH: Final = 0.10
"""What "much higher accuracy" means: a gain of ten points."""


def findings(measured: DongMeasurements) -> list[Finding]:
    """Test all five; texts are for people, so they name norms as such."""
    tests = _crossings, _training, _randomized, _transformed, _transfer
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
    low, high = found.samples
    span = f"n = {low}" if low == high else f"n = {low} to {high}"
    summary = f"{len(found.sure)} of {found.pairs} pairs of curves cross significantly in both directions ({span})"
    summary += f", {found.of_paper} of them between two rows of the paper" * bool(found.sure)
    because = {
        "holds": "each side is significantly more robust somewhere on the same curve"
        + ", but for no two rows of the paper" * (not found.of_paper),
        "does not hold": "curves differ significantly, and none cross",
        "cannot be said": "no crossing is significant at both ends",
    }[verdict]
    more = [f"... and {len(found.sure) - SHOWN} more."] if len(found.sure) > SHOWN else []
    detail = f"{summary}; {found.crossed} cross at all ({found.tests} paired tests, Holm-corrected)."
    reasons = (detail, *_trades_and_pgd(measured), *found.sure[:SHOWN], *more)
    return Finding(1, claim, verdict, reasons, published, summary, because)


def _trades_and_pgd(measured: DongMeasurements) -> list[str]:
    """Compare the two rows that the paper names, at the budgets that it names."""
    if measured.photographs:
        return []
    norm, lines = measured.norms[0], []
    for attack in (attack for attack in ATTACKS if attack.group == "white-box"):
        one, two = (measured.over_eps(row, attack, norm) for row in ("TRADES", "PGD-AT"))
        for where in (0.05, 0.15):
            paired = None if one is None or two is None else paired_at(one, two, where)
            if paired is not None:
                text = versus("TRADES", "PGD-AT", paired, paired.chance)
                lines.append(f"The paper's example, {attack.name} at eps {where:g}: {text} (uncorrected).")
    return lines


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
                tests.setdefault(norm.name, []).append((where, one, two, pair(robust[one][0], robust[two][0])))
        rest = [row for row in others if row in robust]
        if rest and norm.name in tests:
            best = max(rest, key=lambda row: float(robust[row][0].mean()))
            shown = [f"{row} {rate_of(robust[row][0])}" for row in trained if row in robust]
            n = len(robust[best][0])
            ours.append(f"{norm.name}: {', '.join(shown)}, best other ({best}) {rate_of(robust[best][0])}, n = {n}")
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
                   _parts(parts))  # fmt: skip


def _accuracy_cost(measured: DongMeasurements, natural: str, trained: list[str]) -> dict[str, Paired]:
    """Compare the natural model with adversarially trained ones on clean images."""
    known = measured.clean(natural)
    own = {row: measured.clean(row) for row in trained}
    return {} if known is None else {row: pair(known[1], clean[1]) for row, clean in own.items() if clean is not None}


def _randomized(measured: DongMeasurements) -> Finding:
    """Compare each randomized defense with the best other row, attack by attack."""
    claim = "Randomized defenses resist score- and decision-based attacks: in most cases more than any other defense"
    published = (
        "R&P and RandMix have higher accuracy than the others in most cases (Fig. 9 to 12, no number)"
        if measured.photographs
        else "RSE 79.7% (NES), 78.7% (SPSA), 48.6% (NAttack); best other (TRADES) 66.7%, 64.9%, 55.8%"
    )
    own = measured.of_role("randomized")
    rest = [row for row in measured.labels if row not in own]
    tests, ours = [], []
    for norm, attack in product(measured.norms, (attack for attack in ATTACKS if attack.group in QUERY_GROUPS)):
        robust = {
            row: found for row in measured.labels if (found := measured.robust_samples(row, attack, norm)) is not None
        }
        others = [row for row in rest if row in robust]
        for row in (row for row in own if row in robust and others):
            best = max(others, key=lambda other: float(robust[other].mean()))
            where = f"{attack.group} {attack.name}, {norm.name} {round_eps(norm.eps)}"
            tests.append((where, row, f"{best}, the best other row", pair(robust[row], robust[best])))
            ours.append(f"{attack.name} {norm.name} {row} {rate_of(robust[row])}, {best} {robust[best].mean():.1%}")
    if not tests:
        why = "no score- or decision-based runs of a randomized row and of another one"
        return Finding(3, claim, "cannot be said", (f"{why[0].upper()}{why[1:]}.",), published, because=why)
    compared = compare(tests)
    better, worse = sum(one.better for one in compared), sum(one.worse for one in compared)
    because = f"of {len(compared)} comparisons with the best other row {better} are significantly better, {worse} worse"
    asked = " ".join(where for where, *_ in tests)
    missing = [f"no {group}-based attack was run" for group in QUERY_GROUPS if f"{group} " not in asked]
    verdict: Verdict = "cannot be said" if missing else most(compared)  # the claim is about both groups
    sizes = sorted({paired.samples for *_, paired in tests})
    summary = f"{'; '.join(ours)}; n = {' or '.join(map(str, sizes))}"
    because = "; ".join((because + _queries(measured), *missing))
    return Finding(3, claim, verdict, tuple(one.sentence for one in compared), published, summary, because)


def _transformed(measured: DongMeasurements) -> Finding:
    """Compare the natural model with and without each transformation."""
    claim = "Input transformations help a little against white-box attacks, and sometimes much against query-based ones"
    published = (
        "JPEG and Bit-Red above Inc-v3 under query-based attacks (Fig. 9 to 12), slightly under others; no number"
        if measured.photographs
        else "JPEG against Res-56: BIM 3.2% and 0.0% (median distance 0.008 and 0.002); NES 2.1% and 0.0%"
    )
    natural, changed = next(iter(measured.of_role("natural")), None), measured.of_role("transformation")
    if natural is None or not changed:
        why = "it needs the natural row and an input transformation"
        return Finding(4, claim, "cannot be said", (f"{why[0].upper()}{why[1:]}.",), published, because=why)
    distances, rates = [], []
    for row, norm, attack in product(changed, measured.norms, ATTACKS):
        where = f"{attack.group} {attack.name}, {norm.name}"
        if attack.group == "white-box":
            one, two = (measured.over_eps(each, attack, norm) for each in (row, natural))
            if one is not None and two is not None:
                distances.append((where, row, natural, one, two))
        if attack.group in QUERY_GROUPS:
            first, second = (measured.robust_samples(each, attack, norm) for each in (row, natural))
            if first is not None and second is not None:
                rates.append((f"{where} {round_eps(norm.eps)}", row, natural, pair(first, second)))
    if not distances and not rates:
        why = "no runs of both under the same attack"
        return Finding(4, claim, "cannot be said", (f"{why[0].upper()}{why[1:]}.",), published, because=why)
    white, query = compare_distances(distances), compare(rates)
    gains = [one for one in query if one.better and one.difference >= MUCH]
    small = all(paired.interval()[1] < MUCH for *_, paired in rates)
    much: Verdict = "holds" if gains else "does not hold" if rates and small else "cannot be said"
    parts: dict[str, Verdict] = {"white-box": most(white), "query-based": much}
    summary = [
        f"white-box: significantly larger distance in {sum(one.better for one in white)} of {len(white)} comparisons, "
        f"n = {' or '.join(map(str, sorted({len(one.breaks_at) for *_, one, _ in distances})))}"
    ] * bool(white)
    if rates:
        top, largest = max(((test, test[3].difference) for test in rates), key=lambda each: each[1])
        low, high = top[3].interval()
        summary.append(
            f"query-based: largest gain {points(largest)} points ({points(low)} to {points(high)}; {top[1]}, {top[0]}, "
            f"n = {top[3].samples})"
        )
    reasons = tuple(one.sentence for one in (*white, *query))
    note = f"Much means here: a significant gain of {100 * MUCH:.0f} points or more under at least one attack."
    return Finding(
        4,
        claim,
        combined(list(parts.values())),
        (*reasons, note),
        published,
        "; ".join(summary),
        _parts(parts) + _queries(measured) * bool(rates),
    )


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
    n = " or ".join(map(str, sizes))
    summary = f"MIM or DIM − BIM {ends[0]} to {ends[-1]} points over {len(tests)} comparisons, n = {n}"
    reasons = tuple(one.sentence for one in compared)
    if measured.photographs:
        better, worse = sum(one.better for one in compared), sum(one.worse for one in compared)
        because = f"of {len(compared)} comparisons with BIM {better} have significantly lower accuracy, {worse} higher"
        return Finding(5, claim, most(compared), reasons, published, summary, because)
    wide = sum(max(map(abs, paired.interval())) > ALIKE for *_, paired in tests)
    differ = [one for one in compared if one.chance < LEVEL and abs(one.difference) > ALIKE]
    verdict: Verdict = "does not hold" if differ else "cannot be said" if wide else "holds"
    limit = f"{100 * ALIKE:.0f} points"
    because = {
        "holds": f"every interval lies within {limit}",
        "does not hold": f"{len(differ)} of {len(compared)} differences are significant and above {limit}",
        "cannot be said": f"{wide} of {len(tests)} intervals reach beyond {limit}, no significant difference does",
    }[verdict]
    return Finding(5, claim, verdict, reasons, published, summary, because)


def _queries(measured: DongMeasurements) -> str:
    """Say that attacks had fewer queries than the paper's, as more of them could change the verdict."""
    here, paper = measured.settings.queries, FULL.queries
    return f" (after {here:,} queries, in the paper {paper:,})" if here < paper else ""


def _parts(parts: dict[str, Verdict]) -> str:
    """Say which part of a claim has which verdict."""
    return "; ".join(f"{name}: {verdict}" for name, verdict in parts.items())
