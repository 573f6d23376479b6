"""The counterparts of Dong et al.'s figures: which curves stand on which panel; drawing is done elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, final, get_args

from robustassay.analysis.curves import Curve
from robustassay.studies.dong2020.bench import Bench
from robustassay.studies.dong2020.columns import COLUMNS, Column, Group
from robustassay.threat import Norm

Against = Literal["eps", "strength"]

NUMBERS: Final = {
    ("white-box", "Linf", "eps"): 1,
    ("transfer", "Linf", "eps"): 2,
    ("score", "Linf", "eps"): 3,
    ("decision", "L2", "eps"): 4,
    ("score", "Linf", "strength"): 5,
    ("decision", "L2", "strength"): 6,
}
"""What the paper shows of untargeted attacks on CIFAR-10; the rest is as in its Appendix C."""

ELSEWHERE: Final = "Figures 7 to 12 are of ImageNet: see --dataset imagenet."


@final
@dataclass(frozen=True, eq=False)
class Panel:
    """The curves of all rows against one attack."""

    name: str  # of its file
    attack: str
    norm: Norm
    curves: tuple[Curve, ...]


@final
@dataclass(frozen=True, eq=False)
class Figure:
    """The panels of one group of attacks."""

    title: str
    panels: tuple[Panel, ...]


def figures(bench: Bench) -> list[Figure]:
    """Return every figure that has a panel, those that the paper numbers first."""
    made = [
        (_number(bench, group, norm, against) if not targeted else 99, group, norm, targeted, against)
        for targeted in (False, True)
        for norm in bench.norms
        for against in get_args(Against)
        for group in get_args(Group)
    ]
    drawn = (_figure(bench, *what) for what in sorted(made, key=lambda what: what[0]))
    return [figure for figure in drawn if figure.panels]


def _number(bench: Bench, group: Group, norm: Norm, against: Against) -> int:
    """Return the number of the paper's figure: those of ImageNet come after those of CIFAR-10, in the same order."""
    return NUMBERS.get((group, norm.name, against), 99) + len(NUMBERS) * bench.photographs


def _figure(bench: Bench, number: int, group: Group, norm: Norm, targeted: bool, against: Against) -> Figure:
    rate = "success rate" if targeted else "accuracy"
    along = {"eps": "perturbation budget", "strength": "attack strength"}[against]
    goal = "targeted" if targeted else "untargeted"
    kind = f"{group}-based" if group != "white-box" else group
    shown = norm.name.replace("inf", "∞")
    name = f"figure{number}" if number < 99 else f"{group}-{norm.name.lower()}-{goal}-{against}"
    label = f"Figure {number}" if number < 99 else "As in Appendix C"
    title = f"{label}: {rate} vs. {along}, {goal} {kind} attacks under the {shown} norm"
    return Figure(title, tuple(_panels(bench, name, group, norm, targeted, against)))


def _panels(bench: Bench, name: str, group: Group, norm: Norm, targeted: bool, against: Against) -> Iterator[Panel]:
    for column in COLUMNS:
        if column.group == group:
            found = [_curve(bench, row, column, norm, targeted, against) for row in bench.labels]
            named = (replace(curve, label=f"{curve.label}, {column.name}") for curve in found if curve is not None)
            curves = tuple(named)  # a picture taken alone must say which attack it shows
            if curves:
                yield Panel(f"{name}-{column.name.lower().replace('&', '')}", column.name, norm, curves)


def _curve(bench: Bench, row: str, column: Column, norm: Norm, targeted: bool, against: Against) -> Curve | None:
    known = bench.over_eps if against == "eps" else bench.over_effort
    return known(row, column, norm, targeted)
