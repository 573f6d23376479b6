"""The counterparts of Dong et al.'s figures: which curves each shows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, final, get_args

from robustassay.analysis.curves import Curve
from robustassay.studies.dong2020.attacks import ATTACKS, AttackGroup, BenchmarkAttack
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import Figure
from robustassay.threat import Norm

CurveAxis = Literal["eps", "strength"]

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


@final
@dataclass(frozen=True, eq=False)
class DefenseCurves:
    """The curves of all defenses against one attack."""

    norm: Norm
    curves: tuple[Curve, ...]


def figures(measured: DongMeasurements) -> list[Figure]:
    """Return every figure that has a curve, those of the paper's main text first."""
    wanted = [
        (_number(measured, group, norm, axis) if not targeted else APPENDIX, group, norm, targeted, axis)
        for targeted in (False, True)
        for norm in measured.norms
        for axis in get_args(CurveAxis)
        for group in get_args(AttackGroup)
    ]
    return [figure for what in sorted(wanted, key=lambda what: what[0]) for figure in _figures(measured, *what)]


def _number(measured: DongMeasurements, group: AttackGroup, norm: Norm, axis: CurveAxis) -> int:
    """Return the number of the paper's figure; those of ImageNet follow those of CIFAR-10, in the same order."""
    return NUMBERS.get((group, norm.name, axis), APPENDIX) + len(NUMBERS) * measured.photographs


def _figures(
    measured: DongMeasurements, number: int, group: AttackGroup, norm: Norm, targeted: bool, axis: CurveAxis
) -> Iterator[Figure]:
    """Yield one figure per attack of a group."""
    rate = "success rate" if targeted else "accuracy"
    versus = {"eps": "perturbation budget", "strength": "attack strength"}[axis]
    goal = "targeted" if targeted else "untargeted"
    kind = f"{group}-based" if group != "white-box" else group
    name = f"figure{number}" if number < APPENDIX else f"{group}-{norm.name.lower()}-{goal}-{axis}"
    label = f"Figure {number}" if number < APPENDIX else "As in Appendix C"
    title = f"{label}: {rate} vs. {versus}, {goal} {kind} attacks under the {norm.name.replace('inf', '∞')} norm"
    for attack in ATTACKS:
        if attack.group == group:
            found = [_curve(measured, defense, attack, norm, targeted, axis) for defense in measured.labels]
            # Labels name the attack, as each image may be shown alone.
            named = tuple(replace(curve, label=f"{curve.label}, {attack.name}") for curve in found if curve is not None)
            if named:
                file = f"{name}-{attack.name.lower().replace('&', '')}"
                yield Figure(file, attack.name, DefenseCurves(norm, named), title)


def _curve(
    measured: DongMeasurements, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool, axis: CurveAxis
) -> Curve | None:
    find = measured.over_eps if axis == "eps" else measured.over_effort
    return find(defense, attack, norm, targeted)
