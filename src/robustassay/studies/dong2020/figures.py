"""The counterparts of Dong et al.'s figures, each with one panel per attack of a group."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Final, Literal, final, get_args

from robustassay.analysis.curves import Curve
from robustassay.analysis.rates import Rate
from robustassay.studies.dong2020.attacks import ATTACKS, AttackGroup, BenchmarkAttack
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import Figure
from robustassay.threat import L2, Norm

CurveAxis = Literal["eps", "strength"]
Goal = Literal["untargeted", "untargeted-success", "targeted"]
"""Accuracy under untargeted attacks, their success rate, or the success rate of targeted attacks."""

NUMBERS: Final = {
    ("white-box", "Linf", "eps"): 1,
    ("transfer", "Linf", "eps"): 2,
    ("score", "Linf", "eps"): 3,
    ("decision", "L2", "eps"): 4,
    ("score", "Linf", "strength"): 5,
    ("decision", "L2", "strength"): 6,
}
"""The paper's figures of untargeted attacks on CIFAR-10; the others are in its Appendix C."""

APPENDIX: Final = 99
"""Number of figures that the main text of the paper does not show."""

BANDS_FROM: Final = 50
"""Panels of fewer samples have no bands of confidence: those of eight curves would cover each other."""

Lines = dict[int, Rate]


@final
@dataclass(frozen=True, eq=False)
class AttackPanel:
    """The curves of all defenses against one attack, by defense; a transfer attack has rates by steps instead."""

    attack: str
    curves: dict[str, Curve | Lines] = field(repr=False)


@final
@dataclass(frozen=True, eq=False)
class DefensePanels:
    """The panels of one figure, which share their axes' meaning, and the defenses of the whole study."""

    panels: tuple[AttackPanel, ...]
    defenses: tuple[str, ...]  # all of the study, so that each has one colour everywhere
    norm: Norm
    normalised: bool  # whether L2 is divided by the root of the number of values
    axis: CurveAxis
    rate: str


def figures(measured: DongMeasurements) -> list[Figure]:
    """Return every figure that has a curve, those of the paper's main text first."""
    measured = measured.with_some_rows
    goals: tuple[Goal, ...] = get_args(Goal)
    wanted = [
        (_number(measured, group, norm, axis) if goal == "untargeted" else APPENDIX, group, norm, goal, axis)
        for goal, norm, axis, group in product(goals, measured.norms, get_args(CurveAxis), get_args(AttackGroup))
    ]
    return [figure for what in sorted(wanted, key=lambda what: what[0]) for figure in _figures(measured, *what)]


def absent(measured: DongMeasurements) -> list[int]:
    """Return the numbers of the paper's figures that no run here gives."""
    drawn = {figure.name for figure in figures(measured)}
    numbers = [number + len(NUMBERS) * measured.photographs for number in NUMBERS.values()]
    return [number for number in numbers if f"figure{number}" not in drawn]


def _number(measured: DongMeasurements, group: AttackGroup, norm: Norm, axis: CurveAxis) -> int:
    """Return the number of the paper's figure; those of ImageNet follow those of CIFAR-10, in the same order."""
    number = NUMBERS.get((group, norm.name, axis), APPENDIX)
    return number + len(NUMBERS) * measured.photographs if number < APPENDIX else APPENDIX


def _figures(
    measured: DongMeasurements, number: int, group: AttackGroup, norm: Norm, goal: Goal, axis: CurveAxis
) -> Iterator[Figure]:
    """Yield the figure of a group, if any of its attacks has a curve."""
    panels = tuple(
        AttackPanel(attack.name, found)
        for attack in ATTACKS
        if attack.group == group and (found := _curves(measured, attack, norm, goal, axis))
    )
    if not panels:
        return
    normalised = measured.photographs and isinstance(norm, L2)
    rate = "accuracy" if goal == "untargeted" else "success rate"
    versus = {"eps": "perturbation budget", "strength": "attack strength"}[axis]
    what = goal.partition("-")[0]
    kind = f"{group}-based" if group != "white-box" else group
    label = f"Figure {number}" if number < APPENDIX else "As in Appendix C"
    shown = ("normalised " if normalised else "") + norm.name.replace("inf", "∞")
    title = f"{label}: {rate} vs. {versus}, {what} {kind} attacks under the {shown} norm"
    name = f"figure{number}" if number < APPENDIX else f"{group}-{norm.name.lower()}-{goal}-{axis}"
    yield Figure(name, title, DefensePanels(panels, measured.labels, norm, normalised, axis, rate))


def _curves(
    measured: DongMeasurements, attack: BenchmarkAttack, norm: Norm, goal: Goal, axis: CurveAxis
) -> dict[str, Curve | Lines]:
    targeted, success = goal == "targeted", goal == "untargeted-success"
    found: dict[str, Curve | Lines] = {}
    for defense in measured.labels:
        if axis == "strength" and attack.group == "transfer":
            steps = measured.over_steps(defense, attack, norm, targeted, success)
            if steps:
                found[defense] = steps
            continue
        find = measured.over_eps if axis == "eps" else measured.over_effort
        curve = find(defense, attack, norm, targeted, success)
        if curve is not None:
            found[defense] = curve
    return found
