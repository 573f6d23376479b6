"""The figures that Su et al. give in words, beside what was measured on photographs."""

import math
from collections.abc import Iterable
from typing import Final

import pandas as pd

from robustassay.analysis.rates import Rate
from robustassay.studies.page import MISSING, Table
from robustassay.studies.su2018.bench import LINF, Bench
from robustassay.studies.su2018.plan import Column, GoalName, smallest_of
from robustassay.studies.su2018.tables import WORDS, scatter

HEADING: Final = ("what", "the paper", "here")


def beside(bench: Bench) -> Table:
    """Make a table of what can be compared."""
    columns, steps = {column.name: column for column in bench.scale.columns()}, bench.scale.iterations[0]
    fast = [column for column in columns.values() if column.name.startswith("FGSM")]
    lines = [
        _line(bench, "random", "FGSM at any eps", fast, "below 3 % for all settings"),
        _line(bench, "untargeted", "FGSM at any eps", fast, "far more often than with a target"),
    ]
    for goal in ("untargeted", "random"):
        iterated = columns[f"I-FGSM {steps}"], columns[smallest_of(steps)]
        lines += [
            _line(bench, goal, f"I-FGSM, {steps} iterations, fixed radius", iterated[:1], "very good on all models"),
            _line(bench, goal, f"I-FGSM, {steps} iterations, any radius", iterated[1:], "nearly 100 %"),
            _line(bench, goal, "C&W, kappa 0", [columns["C&W κ=0"]], "almost 100 % on almost all models"),
        ]
    lines.append(_halving(bench))
    shown = [line for line in lines if line[2] != MISSING]
    return Table("beside", "Beside the paper", HEADING, tuple(shown), pd.DataFrame(shown, columns=list(HEADING)))


def _line(bench: Bench, goal: GoalName, what: str, columns: Iterable[Column], paper: str) -> tuple[str, str, str]:
    found = [(bench.success(model, goal, column), model.label) for column in columns for model in bench.models]
    rates = [(rate, label) for rate, label in found if rate is not None and rate.total]
    if not rates:
        return f"{what}, {WORDS[goal]}", paper, MISSING
    (low, weakest), (high, _) = min(rates, key=_value), max(rates, key=_value)
    span = f"{low.value:.0%} ({weakest}) to {high.value:.0%}" if low.value < high.value else f"{low.value:.0%} for all"
    told = f"{span}, of {low.total} photographs or so"
    return f"{what}, {WORDS[goal]}: success", paper, told


def _value(found: tuple[Rate, str]) -> float:
    return found[0].value


def _halving(bench: Bench) -> tuple[str, str, str]:
    """Say what halving the error takes from the L-inf distortion, by the law of all models."""
    what, paper = "L∞ distortion lost where the error is halved", "about 0.02, by the models on the frontier"
    points = bench.of_metric(LINF)
    law = scatter(bench, LINF).of_all if len(points) else None
    if law is None:
        return what, paper, MISSING
    low, high = (end * math.log(2) for end in law.b_interval)
    return what, paper, f"{law.b * math.log(2):.2g} ({low:.2g} to {high:.2g}), by all {law.models} models"
