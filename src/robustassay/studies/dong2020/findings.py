"""Dong et al.'s five findings (their section 5.3), each asked of the runs at hand.

A comparison is made on the samples that both sides faced, by an exact McNemar test, or a sign test of two distances;
the p-values within a finding are corrected by Holm. What the samples cannot decide is called that.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, final

import numpy as np

from robustassay.analysis.compare import Paired, mcnemar, pair
from robustassay.analysis.curves import Curve
from robustassay.analysis.ranks import holm
from robustassay.eps import format_eps
from robustassay.errors import BadRequest
from robustassay.studies.dong2020.bench import Bench
from robustassay.studies.dong2020.columns import COLUMNS
from robustassay.studies.dong2020.rows import ADVERSARIAL, TRANSFORMING
from robustassay.studies.page import Answer, Finding, Verdict, numbered
from robustassay.studies.study import listed
from robustassay.threat import Norm

LEVEL: Final = 0.05
SHOWN: Final = 8  # crossings told one by one
ALIKE: Final = 0.05
"""Two attacks perform alike if the interval of their difference stays within so much."""

BUDGETS: Final = {"Linf": [n / 255 for n in (1, 2, 4, 6, 8, 12, 16, 24, 32)], "L2": [0.125, 0.25, 0.5, 1, 1.5, 2, 3]}
EFFORTS: Final = {"iterations": [1, 2, 5, 10, 20, 50, 100], "queries": [100, 200, 500, 1000, 2000, 5000, 10000, 20000]}


def findings(bench: Bench) -> list[Finding]:
    """Ask all five."""
    asked: tuple[tuple[str, Callable[[Bench], Answer]], ...] = (
        ("Which of two defenses is more robust depends on the perturbation budget or the attack strength", _crossings),
        ("The most robust models come from adversarial training, beyond their own norm, and cost accuracy", _training),
        ("Defenses that randomise resist score- and decision-based attacks", _randomised),
        ("Input transformations help a little, and more against score- and decision-based attacks", _transformed),
        ("On CIFAR-10, transfer-based attacks perform alike", _transfer),
    )
    return numbered((claim, ask(bench)) for claim, ask in asked)


@final
@dataclass(frozen=True)
class _Meeting:
    """Two rows at one place of the same curve."""

    curve: str
    one: str
    two: str
    where: str
    paired: Paired


def _crossings(bench: Bench) -> Answer:
    """Look for two rows of which each stands more often than the other somewhere on the same curve."""
    meetings = list(_along_curves(bench))
    if not meetings:
        return "cannot be said", ["No two rows have curves against the same attack."]
    curves: dict[tuple[str, str, str], list[tuple[float, float, _Meeting]]] = {}
    for met, chance in zip(meetings, holm([met.paired.chance for met in meetings]), strict=True):
        curves.setdefault((met.curve, met.one, met.two), []).append((met.paired.difference, chance, met))
    ends = [(max(found, key=lambda end: end[0]), min(found, key=lambda end: end[0])) for found in curves.values()]
    crossed = [(best, worst) for best, worst in ends if best[0] > 0 > worst[0]]
    sure = [_crossing(best, worst) for best, worst in crossed if max(best[1], worst[1]) < LEVEL]
    told = f"{len(sure)} of {len(curves)} pairs of curves cross beyond chance in both directions, {len(crossed)} cross "
    told += f"at all ({len(meetings)} paired tests, Holm-corrected)."
    apart = any(chance < LEVEL for found in curves.values() for _, chance, _ in found)
    verdict: Verdict = "holds" if sure else "does not hold" if apart and not crossed else "cannot be said"
    return verdict, [told, *sure[:SHOWN], *([f"... and {len(sure) - SHOWN} more."] if len(sure) > SHOWN else [])]


def _crossing(best: tuple[float, float, _Meeting], worst: tuple[float, float, _Meeting]) -> str:
    met = best[2]
    return (
        f"{met.curve}: {met.one} stands more often than {met.two} at {met.where} ({_points(best[0])} points, "
        f"p = {best[1]:.2g}) and less often at {worst[2].where} ({_points(worst[0])} points, p = {worst[1]:.2g}; "
        f"n = {met.paired.samples})."
    )


def _along_curves(bench: Bench) -> Iterator[_Meeting]:
    for norm, column in product(bench.norms, COLUMNS):
        for known in (bench.over_eps, bench.over_effort):
            curves = [curve for row in bench.labels if (curve := known(row, column, norm)) is not None]
            for one, two in combinations(curves, 2):
                what = f"{column.group} {column.name}, {norm.name}, {one.versus}"
                for where in BUDGETS[norm.name] if one.versus == "eps" else EFFORTS[one.versus]:
                    paired = _paired_at(one, two, where)
                    if paired is not None:
                        shown = format_eps(where) if one.versus == "eps" else f"{where:,.0f}"
                        yield _Meeting(what, one.label, two.label, f"{one.versus} {shown}", paired)


def _paired_at(one: Curve, two: Curve, where: float) -> Paired | None:
    try:
        return pair(one.standing(where), two.standing(where))
    except BadRequest:  # one of the runs has not been there
        return None


def _training(bench: Bench) -> Answer:
    """Compare adversarially trained rows with all others, against all white-box attacks together, under each norm."""
    trained = [row for row in bench.labels if row in ADVERSARIAL]
    others = [row for row in bench.labels if row not in ADVERSARIAL]
    if not trained or not others:
        return "cannot be said", [f"It needs one of {listed(ADVERSARIAL)} and a row that is not, with white-box runs."]
    tests = []
    for norm in bench.norms:
        for one in trained:
            for two in others:
                first, second = (bench.standing_to_all(row, norm, "white-box") for row in (one, two))
                if first is not None and second is not None:
                    where = f"{norm.name} {format_eps(norm.eps)}, worst case of {listed(first[1])}"
                    tests.append((where, norm, one, two, pair(first[0], second[0])))
    chances = holm([paired.chance for *_, paired in tests])
    reasons = [
        f"{where}: {_versus(one, two, paired, chance)}"
        for (where, _, one, two, paired), chance in zip(tests, chances, strict=True)
    ]
    price = _price(bench, trained)
    reasons += [f"Clean images: {_versus(bench.backbone, row, paired, paired.chance)}" for row, paired in price.items()]
    if {norm.name for _, norm, *_ in tests} != {norm.name for norm in bench.norms} or not price:
        return "cannot be said", [
            *reasons,
            f"It needs white-box runs under both norms, of {bench.backbone} among others.",
        ]
    robust = _judged([paired.difference for *_, paired in tests], chances)
    costs = all(paired.difference > 0 and paired.chance < LEVEL for paired in price.values())
    return "holds in part" if robust == "holds" and not costs else robust, reasons


def _price(bench: Bench, trained: Sequence[str]) -> dict[str, Paired]:
    """Compare the natural row with trained ones on clean images."""
    natural, own = bench.clean(bench.backbone), {row: bench.clean(row) for row in trained}
    if natural is None:
        return {}
    return {row: pair(natural[1], clean[1]) for row, clean in own.items() if clean is not None}


def _randomised(bench: Bench) -> Answer:
    """Compare the row that randomises with the best other one, attack by attack."""
    if bench.randomising not in bench.labels:
        return "cannot be said", [f"No row here randomises: {bench.randomising} is not among the models at hand."]
    tests = []
    for norm in bench.norms:
        for column in COLUMNS:
            if column.group not in ("score", "decision"):
                continue
            own = bench.standing(bench.randomising, column, norm)
            rest = {row: bench.standing(row, column, norm) for row in bench.labels if row != bench.randomising}
            known = {row: stands for row, stands in rest.items() if stands is not None}
            if own is not None and known:
                best = max(known, key=lambda row: float(known[row].mean()))
                tests.append((f"{column.name}, {norm.name}", best, pair(own, known[best])))
    if not tests:
        return "cannot be said", ["No score- or decision-based runs of it and of another row."]
    chances = holm([paired.chance for *_, paired in tests])
    reasons = [
        f"{where}: {_versus(bench.randomising, f'{best}, the best other row', paired, chance)}"
        for (where, best, paired), chance in zip(tests, chances, strict=True)
    ]
    return _judged([paired.difference for *_, paired in tests], chances), reasons


def _transformed(bench: Bench) -> Answer:
    """Compare, sample by sample, what it takes to break the backbone with and without the transformation."""
    if not {TRANSFORMING, bench.backbone} <= set(bench.labels):
        return "cannot be said", [f"It needs {TRANSFORMING} and {bench.backbone}."]
    tests = []
    for norm in bench.norms:
        for column in COLUMNS:
            one, two = (bench.over_eps(row, column, norm) for row in (TRANSFORMING, bench.backbone))
            if one is not None and two is not None and column.group != "transfer":
                tests.append((column, norm, one, two, *_farther(one, two)))
    if not tests:
        return "cannot be said", ["No curves over eps of both."]
    chances = holm([mcnemar(more, less) for *_, more, less in tests])
    reasons = [
        f"{column.group} {column.name}, {norm.name}: {TRANSFORMING} takes a larger perturbation on {more} samples and "
        f"a smaller one on {less} (p = {chance:.2g}); median {one.median:.3g} against {two.median:.3g}."
        for (column, norm, one, two, more, less), chance in zip(tests, chances, strict=True)
    ]
    return _judged([more - less for *_, more, less in tests], chances), [*reasons, *_at_fixed_eps(bench)]


def _farther(one: Curve, two: Curve) -> tuple[int, int]:
    """Count the samples that take more to break on one side, and on the other; clean mistakes take nothing."""
    common = one.falls_at.index.intersection(two.falls_at.index)
    first, second = (np.where(curve.clean_ok.loc[common], curve.falls_at.loc[common], 0.0) for curve in (one, two))
    return int((first > second).sum()), int((first < second).sum())


def _at_fixed_eps(bench: Bench) -> list[str]:
    """Compare the transformation with its backbone under attacks that were run at the fixed eps only."""
    said = []
    for norm in bench.norms:
        for column in COLUMNS:
            if column.group in ("score", "decision"):
                one, two = (bench.standing(row, column, norm) for row in (TRANSFORMING, bench.backbone))
                if one is not None and two is not None:
                    paired = pair(one, two)
                    where = f"{column.group} {column.name}, {norm.name} {format_eps(norm.eps)}"
                    said.append(
                        f"{where}: {_versus(TRANSFORMING, bench.backbone, paired, paired.chance)} (uncorrected)"
                    )
    return said


def _transfer(bench: Bench) -> Answer:
    """Compare MIM and DIM with BIM, all made on the same substitute, on each row."""
    by_name = {column.name: column for column in COLUMNS if column.group == "transfer"}
    tests: list[tuple[str, str, Norm, Paired]] = []
    for norm in bench.norms:
        for row in bench.labels:
            plain = bench.standing(row, by_name["BIM"], norm)
            for name in ("MIM", "DIM"):
                recent = bench.standing(row, by_name[name], norm)
                if plain is not None and recent is not None:
                    tests.append((row, name, norm, pair(recent, plain)))
    if not tests:
        return "cannot be said", ["No transfer runs of BIM and of MIM or DIM."]
    chances = holm([paired.chance for *_, paired in tests])
    reasons = [
        f"{row}, {norm.name} {format_eps(norm.eps)}: accuracy {_versus(f'under {name}', 'under BIM', paired, chance)}"
        for (row, name, norm, paired), chance in zip(tests, chances, strict=True)
    ]
    alike = all(low >= -ALIKE and high <= ALIKE for *_, paired in tests for low, high in [paired.interval()])
    differ = any(
        chance < LEVEL and abs(paired.difference) > ALIKE for (*_, paired), chance in zip(tests, chances, strict=True)
    )
    reasons.append(f"Alike means here: every interval of a difference stays within {_points(ALIKE)} points either way.")
    reasons.append(
        "Whether MIM and DIM transfer better on ImageNet, as the paper says, cannot be said: no such models."
    )
    return "holds" if alike else "does not hold" if differ else "cannot be said", reasons


def _judged(differences: Sequence[float], chances: Sequence[float]) -> Verdict:
    """Judge a claim that one side is better under each of several attacks."""
    better = sum(d > 0 and p < LEVEL for d, p in zip(differences, chances, strict=True))
    worse = sum(d < 0 and p < LEVEL for d, p in zip(differences, chances, strict=True))
    if better == len(differences):
        return "holds"
    return "holds in part" if better else "does not hold" if worse else "cannot be said"


def _versus(one: str, two: str, paired: Paired, chance: float) -> str:
    low, high = paired.interval()
    first, second = ((paired.both + alone) / paired.samples for alone in (paired.only_first, paired.only_second))
    return (
        f"{one} {first:.1%}, {two} {second:.1%}: {_points(paired.difference)} points "
        f"({_points(low)} to {_points(high)}; p = {chance:.2g}, n = {paired.samples})"
    )


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")
