"""The numbers that Su et al. state in their text, beside ours."""

import math
from collections.abc import Iterable
from typing import Final

import pandas as pd

from robustassay.analysis.rates import Rate
from robustassay.studies.page import MISSING, Table
from robustassay.studies.su2018.measurements import LINF, SuMeasurements
from robustassay.studies.su2018.settings import GOAL_TEXTS, SMALLEST, GoalName, SuAttack

HEADING: Final = ("what", "the paper", "here")


def comparison_with_paper(measured: SuMeasurements) -> Table:
    """Return a table of what can be compared."""
    attacks, steps = {attack.name: attack for attack in measured.settings.attacks()}, measured.settings.iterations[0]
    fast = [attack for attack in attacks.values() if attack.name.startswith("FGSM")]
    lines = [
        _line(measured, "random", "FGSM at any eps", fast, "below 3 % for all settings"),
        _line(measured, "untargeted", "FGSM at any eps", fast, "far more often than with a target"),
    ]
    for goal in ("untargeted", "random"):
        iterated = attacks[f"I-FGSM {steps}"], attacks[SMALLEST]
        lines += [
            _line(measured, goal, f"I-FGSM, {steps} iterations, fixed radius", iterated[:1], "very good on all models"),
            _line(measured, goal, f"I-FGSM, {steps} iterations, any radius", iterated[1:], "nearly 100 %"),
            _line(measured, goal, "C&W, kappa 0", [attacks["C&W κ=0"]], "almost 100 % on almost all models"),
        ]
    lines.append(_halving(measured))
    shown = [line for line in lines if line[2] != MISSING]
    return Table(
        "comparison", "Comparison with the paper", HEADING, tuple(shown), pd.DataFrame(shown, columns=list(HEADING))
    )


def _line(
    measured: SuMeasurements, goal: GoalName, what: str, attacks: Iterable[SuAttack], paper: str
) -> tuple[str, str, str]:
    found = [(measured.success(model, goal, attack), model.label) for attack in attacks for model in measured.models]
    rates = [(rate, label) for rate, label in found if rate is not None and rate.total]
    if not rates:
        return f"{what}, {GOAL_TEXTS[goal]}", paper, MISSING
    (low, weakest), (high, _) = min(rates, key=_value), max(rates, key=_value)
    span = f"{low.value:.0%} ({weakest}) to {high.value:.0%}" if low.value < high.value else f"{low.value:.0%} for all"
    ours = f"{span}, of about {low.total} photographs"
    return f"{what}, {GOAL_TEXTS[goal]}: success", paper, ours


def _value(found: tuple[Rate, str]) -> float:
    return found[0].value


def _halving(measured: SuMeasurements) -> tuple[str, str, str]:
    """Return the L-inf distortion lost per halving of the error, by the law of all models."""
    what, paper = "L∞ distortion lost per halving of the error", "about 0.02, by the models on the frontier"
    points = measured.models_by(LINF)
    law = measured.scatter(LINF).of_all if len(points) else None
    if law is None:
        return what, paper, MISSING
    low, high = (end * math.log(2) for end in law.b_interval)
    return what, paper, f"{law.b * math.log(2):.2g} ({low:.2g} to {high:.2g}), by all {law.models} models"
