"""Dong et al.'s five findings (their section 5.3), tested on the runs.

Two sides are compared on the samples that both have, by an exact McNemar test, or by a sign test of distances. The
p-values within a finding are Holm-corrected. Where the samples are too few to decide, the verdict is "cannot be said".
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
from robustassay.studies.dong2020.attacks import ATTACKS
from robustassay.studies.dong2020.defenses import ADVERSARIAL, TRANSFORMATION
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import Answer, Finding, Verdict, combined, comma_list, numbered
from robustassay.threat import Norm

LEVEL: Final = 0.05
SHOWN: Final = 8  # crossings listed one by one
ALIKE: Final = 0.05
"""Two attacks perform alike if the interval of their difference stays within this."""

BUDGETS: Final = {"Linf": [n / 255 for n in (1, 2, 4, 6, 8, 12, 16, 24, 32)], "L2": [0.125, 0.25, 0.5, 1, 1.5, 2, 3]}
EFFORTS: Final = {"iterations": [1, 2, 5, 10, 20, 50, 100], "queries": [100, 200, 500, 1000, 2000, 5000, 10000, 20000]}


def findings(measured: DongMeasurements) -> list[Finding]:
    """Test all five."""
    claims: tuple[tuple[str, Callable[[DongMeasurements], Answer]], ...] = (
        ("Which of two defenses is more robust depends on the perturbation budget or the attack strength", _crossings),
        ("The most robust models come from adversarial training, beyond their own norm, and cost accuracy", _training),
        ("Randomized defenses resist score- and decision-based attacks", _randomized),
        ("Input transformations help a little, and more against score- and decision-based attacks", _transformed),
        ("On CIFAR-10, transfer-based attacks perform alike", _transfer),
    )
    return numbered((claim, test(measured)) for claim, test in claims)


@final
@dataclass(frozen=True)
class _CurvePoint:
    """Two defenses at one point of the same curve."""

    curve: str
    one: str
    two: str
    where: str
    paired: Paired


def _crossings(measured: DongMeasurements) -> Answer:
    """Look for two defenses each of which is more robust than the other somewhere on the same curve."""
    points = list(_along_curves(measured))
    if not points:
        return "cannot be said", ["No two rows have curves against the same attack."]
    curves: dict[tuple[str, str, str], list[tuple[float, float, _CurvePoint]]] = {}
    for point, p in zip(points, holm([point.paired.chance for point in points]), strict=True):
        curves.setdefault((point.curve, point.one, point.two), []).append((point.paired.difference, p, point))
    ends = [(max(found, key=lambda end: end[0]), min(found, key=lambda end: end[0])) for found in curves.values()]
    crossed = [(best, worst) for best, worst in ends if best[0] > 0 > worst[0]]
    sure = [_crossing(best, worst) for best, worst in crossed if max(best[1], worst[1]) < LEVEL]
    summary = f"{len(sure)} of {len(curves)} pairs of curves cross significantly in both directions, {len(crossed)} "
    summary += f"cross at all ({len(points)} paired tests, Holm-corrected)."
    apart = any(chance < LEVEL for found in curves.values() for _, chance, _ in found)
    verdict: Verdict = "holds" if sure else "does not hold" if apart and not crossed else "cannot be said"
    return verdict, [summary, *sure[:SHOWN], *([f"... and {len(sure) - SHOWN} more."] if len(sure) > SHOWN else [])]


def _crossing(best: tuple[float, float, _CurvePoint], worst: tuple[float, float, _CurvePoint]) -> str:
    point = best[2]
    return (
        f"{point.curve}: {point.one} is more robust than {point.two} at {point.where} ({_points(best[0])} points, "
        f"p = {best[1]:.2g}) and less robust at {worst[2].where} ({_points(worst[0])} points, p = {worst[1]:.2g}; "
        f"n = {point.paired.samples})."
    )


def _along_curves(measured: DongMeasurements) -> Iterator[_CurvePoint]:
    for norm, attack in product(measured.norms, ATTACKS):
        for curve_of in (measured.over_eps, measured.over_effort):
            curves = [curve for row in measured.labels if (curve := curve_of(row, attack, norm)) is not None]
            for one, two in combinations(curves, 2):
                what = f"{attack.group} {attack.name}, {norm.name}, {one.versus}"
                for where in BUDGETS[norm.name] if one.versus == "eps" else EFFORTS[one.versus]:
                    paired = _paired_at(one, two, where)
                    if paired is not None:
                        shown = format_eps(where) if one.versus == "eps" else f"{where:,.0f}"
                        yield _CurvePoint(what, one.label, two.label, f"{one.versus} {shown}", paired)


def _paired_at(one: Curve, two: Curve, where: float) -> Paired | None:
    try:
        return pair(one.unbroken(where), two.unbroken(where))
    except BadRequest:  # one of the runs has no value there
        return None


def _training(measured: DongMeasurements) -> Answer:
    """Compare adversarially trained defenses with all others: worst case of all white-box attacks, under each norm."""
    trained = [row for row in measured.labels if row in ADVERSARIAL]
    others = [row for row in measured.labels if row not in ADVERSARIAL]
    if not trained or not others:
        return "cannot be said", [
            f"It needs one of {comma_list(ADVERSARIAL)} and a row that is not, with white-box runs."
        ]
    tests = []
    for norm in measured.norms:
        for one in trained:
            for two in others:
                first, second = (measured.robust_to_all(row, norm, "white-box") for row in (one, two))
                if first is not None and second is not None:
                    where = f"{norm.name} {format_eps(norm.eps)}, worst case of {comma_list(first[1])}"
                    tests.append((where, norm, one, two, pair(first[0], second[0])))
    chances = holm([paired.chance for *_, paired in tests])
    reasons = [
        f"{where}: {_versus(one, two, paired, chance)}"
        for (where, _, one, two, paired), chance in zip(tests, chances, strict=True)
    ]
    cost = _accuracy_cost(measured, trained)
    reasons += [
        f"Clean images: {_versus(measured.undefended, row, paired, paired.chance)}" for row, paired in cost.items()
    ]
    if {norm.name for _, norm, *_ in tests} != {norm.name for norm in measured.norms} or not cost:
        return "cannot be said", [
            *reasons,
            f"It needs white-box runs under both norms, of {measured.undefended} among others.",
        ]
    robust = _verdict([paired.difference for *_, paired in tests], chances)
    costs = all(paired.difference > 0 and paired.chance < LEVEL for paired in cost.values())
    costly: Verdict = "holds" if costs else "cannot be said"
    return combined([robust, costly]), reasons


def _accuracy_cost(measured: DongMeasurements, trained: Sequence[str]) -> dict[str, Paired]:
    """Compare the natural model with adversarially trained ones on clean images."""
    natural, own = measured.clean(measured.undefended), {row: measured.clean(row) for row in trained}
    if natural is None:
        return {}
    return {row: pair(natural[1], clean[1]) for row, clean in own.items() if clean is not None}


def _randomized(measured: DongMeasurements) -> Answer:
    """Compare the randomized defense with the best other one, attack by attack."""
    if measured.randomized not in measured.labels:
        return "cannot be said", [f"There is no randomized defense: {measured.randomized} is not among the models."]
    tests = []
    for norm in measured.norms:
        for attack in ATTACKS:
            if attack.group not in ("score", "decision"):
                continue
            own = measured.robust_samples(measured.randomized, attack, norm)
            rest = {
                row: measured.robust_samples(row, attack, norm) for row in measured.labels if row != measured.randomized
            }
            known = {row: robust for row, robust in rest.items() if robust is not None}
            if own is not None and known:
                best = max(known, key=lambda row: float(known[row].mean()))
                tests.append((f"{attack.name}, {norm.name}", best, pair(own, known[best])))
    if not tests:
        return "cannot be said", ["No score- or decision-based runs of it and of another row."]
    chances = holm([paired.chance for *_, paired in tests])
    reasons = [
        f"{where}: {_versus(measured.randomized, f'{best}, the best other row', paired, chance)}"
        for (where, best, paired), chance in zip(tests, chances, strict=True)
    ]
    return _verdict([paired.difference for *_, paired in tests], chances), reasons


def _transformed(measured: DongMeasurements) -> Answer:
    """Compare, per sample, the distance that breaks the model with and without the transformation."""
    if not {TRANSFORMATION, measured.undefended} <= set(measured.labels):
        return "cannot be said", [f"It needs {TRANSFORMATION} and {measured.undefended}."]
    tests = []
    for norm in measured.norms:
        for attack in ATTACKS:
            one, two = (measured.over_eps(row, attack, norm) for row in (TRANSFORMATION, measured.undefended))
            if one is not None and two is not None and attack.group != "transfer":
                tests.append((attack, norm, one, two, *_larger_distances(one, two)))
    if not tests:
        return "cannot be said", ["No curves over eps of both."]
    chances = holm([mcnemar(more, less) for *_, more, less in tests])
    reasons = [
        f"{attack.group} {attack.name}, {norm.name}: {TRANSFORMATION} needs a larger perturbation on {more} samples "
        f"and a smaller one on {less} (p = {chance:.2g}); median {one.median:.3g} against {two.median:.3g}."
        for (attack, norm, one, two, more, less), chance in zip(tests, chances, strict=True)
    ]
    return _verdict([more - less for *_, more, less in tests], chances), [*reasons, *_at_fixed_eps(measured)]


def _larger_distances(one: Curve, two: Curve) -> tuple[int, int]:
    """Count the samples with the larger distance on one side, and on the other; clean errors have distance 0."""
    common = one.breaks_at.index.intersection(two.breaks_at.index)
    first, second = (np.where(curve.clean_ok.loc[common], curve.breaks_at.loc[common], 0.0) for curve in (one, two))
    return int((first > second).sum()), int((first < second).sum())


def _at_fixed_eps(measured: DongMeasurements) -> list[str]:
    """Compare with and without the transformation under attacks that were run at the fixed eps only."""
    lines = []
    for norm in measured.norms:
        for attack in ATTACKS:
            if attack.group in ("score", "decision"):
                one, two = (measured.robust_samples(row, attack, norm) for row in (TRANSFORMATION, measured.undefended))
                if one is not None and two is not None:
                    paired = pair(one, two)
                    where = f"{attack.group} {attack.name}, {norm.name} {format_eps(norm.eps)}"
                    lines.append(
                        f"{where}: {_versus(TRANSFORMATION, measured.undefended, paired, paired.chance)} (uncorrected)"
                    )
    return lines


def _transfer(measured: DongMeasurements) -> Answer:
    """Compare MIM and DIM with BIM, all from the same substitute, on each defense."""
    by_name = {attack.name: attack for attack in ATTACKS if attack.group == "transfer"}
    tests: list[tuple[str, str, Norm, Paired]] = []
    for norm in measured.norms:
        for row in measured.labels:
            plain = measured.robust_samples(row, by_name["BIM"], norm)
            for name in ("MIM", "DIM"):
                recent = measured.robust_samples(row, by_name[name], norm)
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
    if not measured.photographs:
        reasons.append("Whether MIM and DIM transfer better on ImageNet, as the paper says, is not tested here.")
    return "holds" if alike else "does not hold" if differ else "cannot be said", reasons


def _verdict(differences: Sequence[float], chances: Sequence[float]) -> Verdict:
    """Return the verdict on a claim that one side is better under each of several attacks."""
    better = sum(d > 0 and p < LEVEL for d, p in zip(differences, chances, strict=True))
    worse = sum(d < 0 and p < LEVEL for d, p in zip(differences, chances, strict=True))
    if better == len(differences):
        return "holds"
    return "does not hold" if worse else "cannot be said"


def _versus(one: str, two: str, paired: Paired, chance: float) -> str:
    low, high = paired.interval()
    first, second = ((paired.both + alone) / paired.samples for alone in (paired.only_first, paired.only_second))
    return (
        f"{one} {first:.1%}, {two} {second:.1%}: {_points(paired.difference)} points "
        f"({_points(low)} to {_points(high)}; p = {chance:.2g}, n = {paired.samples})"
    )


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")
