"""Dong et al.'s third and fourth findings: randomized defenses, and input transformations, under queries."""

from collections.abc import Sequence
from itertools import product
from typing import Final

from robustassay.analysis.compare import pair
from robustassay.analysis.curves import Curve
from robustassay.eps import round_eps
from robustassay.studies.dong2020.attacks import ATTACKS, QUERY_GROUPS
from robustassay.studies.dong2020.comparisons import (
    Compared,
    compare,
    compare_distances,
    most,
    parts_of,
    points,
    rate_of,
)
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.dong2020.settings import FULL
from robustassay.studies.page import Finding, Verdict, combined, either

MUCH: Final = 0.10
"""What "much higher accuracy" means: a gain of ten points."""


def randomized(measured: DongMeasurements) -> Finding:
    """Compare each randomized defense with the best other row, attack by attack."""
    claim = "Randomized defenses resist score- and decision-based attacks: in most cases more than any other defense"
    published = (
        "R&P and RandMix have higher accuracy than the others in most cases (Fig. 9 to 12, no number)"
        if measured.photographs
        else "RSE 79.7% (NES), 78.7% (SPSA), 48.6% (NAttack); best other (TRADES) 66.7%, 64.9%, 55.8%"
    )
    own = measured.of_role("randomized")
    rest = [row for row in measured.labels if row not in own]
    tests, doubted, ours, unsure = [], [], [], 0
    for norm, attack in product(measured.norms, (attack for attack in ATTACKS if attack.group in QUERY_GROUPS)):
        robust = {
            row: found for row in measured.labels if (found := measured.robust_samples(row, attack, norm)) is not None
        }
        others = [row for row in rest if row in robust]
        for row in (row for row in own if row in robust and others):
            same = {other: robust[other][robust[other].index.isin(robust[row].index)] for other in (row, *others)}
            best = max(others, key=lambda other: float(same[other].mean()))
            where = f"{attack.group} {attack.name}, {norm.name} {round_eps(norm.eps)}"
            tests.append((where, row, f"{best}, the best other row", pair(same[row], same[best])))
            refused = measured.unconfirmed(row, attack, norm)
            sure = same[row] if refused is None else same[row] & ~refused.reindex(same[row].index, fill_value=False)
            doubted.append((*tests[-1][:3], pair(sure, same[best])))
            unsure += int(same[row].sum() - sure.sum())
            ours.append(f"{attack.name} {norm.name} {row} {rate_of(same[row])}, {best} {same[best].mean():.1%}")
    if not tests:
        why = "no score- or decision-based runs of a randomized row and of another one"
        return Finding(3, claim, "cannot be said", (f"{why[0].upper()}{why[1:]}.",), published, because=why)
    compared = compare(tests)
    better, worse = sum(one.better for one in compared), sum(one.worse for one in compared)
    because = f"of {len(compared)} comparisons with the best other row {better} are significantly better, {worse} worse"
    asked = " ".join(where for where, *_ in tests)
    missing = _not_run(asked)
    verdict: Verdict = "cannot be said" if missing else most(compared)  # the claim is about both groups
    reasons = [one.sentence for one in compared]
    if unsure:
        counted = compare(doubted)
        above, below = sum(one.better for one in counted), sum(one.worse for one in counted)
        reasons.append(
            f"{unsure} of {sum(paired.samples for *_, paired in tests)} samples of randomized rows, over all "
            "comparisons, count as robust because the attack's claims did not verify. Were they counted as broken, "
            f"{above} comparisons would be significantly better and {below} worse."
        )
        if most(counted) != verdict and not missing:
            verdict = "cannot be said"
            because += "; with claims that did not verify counted as broken, the verdict is another one"
    sizes = sorted({paired.samples for *_, paired in tests})
    summary = f"{'; '.join(ours)}; n = {either(sizes)}"
    because = "; ".join((because + _queries(measured), *missing))
    return Finding(3, claim, verdict, tuple(reasons), published, summary, because)


def transformed(measured: DongMeasurements) -> Finding:
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
    missing = _not_run(" ".join(where for where, *_ in rates))
    much: Verdict = "holds" if gains else "does not hold" if small and not missing else "cannot be said"
    parts: dict[str, Verdict] = {"white-box": most(white), "query-based": much}
    summary = [_white_box_summary(distances, white)] * bool(white)
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
        "; ".join((parts_of(parts) + _queries(measured) * bool(rates), *missing)),
    )


def _white_box_summary(tests: Sequence[tuple[str, str, str, Curve, Curve]], found: Sequence[Compared]) -> str:
    """Count the comparisons in which a transformation needs larger distances; by row, where there are several."""
    better: dict[str, list[bool]] = {}
    for (_, row, *_), one in zip(tests, found, strict=True):
        better.setdefault(row, []).append(one.better)
    rows = ", ".join(f"{row} {sum(flags)} of {len(flags)}" for row, flags in better.items())
    sizes = either(sorted({len(one.breaks_at) for *_, one, _ in tests}))
    count = f"{sum(one.better for one in found)} of {len(found)} comparisons" + f" ({rows})" * (len(better) > 1)
    return f"white-box: significantly larger distance in {count}, n = {sizes}"


def _not_run(asked: str) -> list[str]:
    """Name the groups of query-based attacks that these comparisons lack: a claim about both needs both."""
    return [f"no {group}-based attack was run" for group in QUERY_GROUPS if f"{group} " not in asked]


def _queries(measured: DongMeasurements) -> str:
    """Say that attacks had fewer queries than the paper's, as more of them could change the verdict."""
    here, paper = measured.settings.queries, FULL.queries
    return f" (after {here:,} queries, in the paper {paper:,})" if here < paper else ""
