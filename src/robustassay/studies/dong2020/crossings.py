"""Finding 1: pairs of defenses each of which is more robust than the other somewhere on the same curve."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, final

from robustassay.analysis.compare import Paired, pair
from robustassay.analysis.curves import Curve
from robustassay.analysis.ranks import holm
from robustassay.eps import round_eps
from robustassay.errors import BadRequest
from robustassay.studies.dong2020.attacks import ATTACKS
from robustassay.studies.dong2020.comparisons import LEVEL, points
from robustassay.studies.dong2020.defenses import ADDED
from robustassay.studies.dong2020.measurements import DongMeasurements

SHOWN: Final = 8  # crossings listed one by one
BUDGETS: Final = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 3 / 2, 2, 3, 4)
"""Where curves over eps are compared, in parts of the fixed eps."""

EFFORTS: Final = {"iterations": [1, 2, 5, 10, 20, 50, 100], "queries": [100, 200, 500, 1000, 2000, 5000, 10000, 20000]}


@final
@dataclass(frozen=True)
class _CurvePoint:
    """Two defenses at one point of the same curve."""

    curve: str
    one: str
    two: str
    where: str
    paired: Paired


@final
@dataclass(frozen=True)
class Crossings:
    """The pairs of curves that were compared, and those that cross."""

    pairs: int
    tests: int
    samples: tuple[int, int]  # fewest and most of a test
    crossed: int  # whose differences have both signs, by chance or not
    differ: bool  # whether any two curves differ significantly anywhere
    sure: tuple[str, ...]  # sentences on pairs that cross significantly in both directions, the paper's rows first
    of_paper: int  # how many of these are of two rows of the paper


def crossings(measured: DongMeasurements) -> Crossings | None:
    """Compare all pairs of defenses along all curves; None without two comparable curves."""
    found = list(_along_curves(measured))
    if not found:
        return None
    curves: dict[tuple[str, str, str], list[tuple[float, float, _CurvePoint]]] = {}
    for point, p in zip(found, holm([point.paired.chance for point in found]), strict=True):
        curves.setdefault((point.curve, point.one, point.two), []).append((point.paired.difference, p, point))
    ends = [(max(each, key=lambda end: end[0]), min(each, key=lambda end: end[0])) for each in curves.values()]
    crossed = [(best, worst) for best, worst in ends if best[0] > 0 > worst[0]]
    sizes = [point.paired.samples for point in found]
    added = {row.label for row in measured.defenses if row.category == ADDED}
    sure = [(best, worst) for best, worst in crossed if max(best[1], worst[1]) < LEVEL]
    sure.sort(key=lambda ends: bool({ends[0][2].one, ends[0][2].two} & added))
    return Crossings(
        len(curves),
        len(found),
        (min(sizes), max(sizes)),
        len(crossed),
        any(chance < LEVEL for each in curves.values() for _, chance, _ in each),
        tuple(_sentence(best, worst) for best, worst in sure),
        sum(not {best[2].one, best[2].two} & added for best, _ in sure),
    )


def _sentence(best: tuple[float, float, _CurvePoint], worst: tuple[float, float, _CurvePoint]) -> str:
    point = best[2]
    return (
        f"{point.curve}: {point.one} is more robust than {point.two} at {point.where} ({points(best[0])} points, "
        f"p = {best[1]:.2g}) and less robust at {worst[2].where} ({points(worst[0])} points, p = {worst[1]:.2g}; "
        f"n = {point.paired.samples})."
    )


def _along_curves(measured: DongMeasurements) -> Iterator[_CurvePoint]:
    for norm, attack in product(measured.norms, ATTACKS):
        for curve_of in (measured.over_eps, measured.over_effort):
            curves = [curve for row in measured.labels if (curve := curve_of(row, attack, norm)) is not None]
            for one, two in combinations(curves, 2):
                what = f"{attack.group} {attack.name}, {norm.name}, over {one.versus}"
                budgets = [part * norm.eps for part in BUDGETS]
                for where in budgets if one.versus == "eps" else EFFORTS[one.versus]:
                    paired = paired_at(one, two, where)
                    if paired is not None:
                        shown = f"eps {round_eps(where)}" if one.versus == "eps" else _count(where, one.versus)
                        yield _CurvePoint(what, one.label, two.label, shown, paired)


def _count(number: float, unit: str) -> str:
    return f"{number:,.0f} {unit if number != 1 else unit.removesuffix('s')}"


def paired_at(one: Curve, two: Curve, where: float) -> Paired | None:
    """Compare two curves at one point; None where one of the runs has no value there."""
    try:
        return pair(one.unbroken(where), two.unbroken(where))
    except BadRequest:
        return None
