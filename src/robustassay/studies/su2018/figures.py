"""The counterparts of Figures 1 to 5: sweeps, scatter plots of accuracy and robustness, and transfer matrices."""

from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis.panels import Lines
from robustassay.eps import format_eps
from robustassay.names import slug
from robustassay.studies.page import Figure
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.settings import GOAL_TEXTS, GoalName, SuAttack, fgsm_name
from robustassay.studies.su2018.transfers import transfer_matrix

FEWEST_MODELS: Final = 3
"""Models that a scatter plot with a fitted law needs."""


def figures(measured: SuMeasurements) -> list[Figure]:
    """Return every figure that there are results for; the table of transfer has the matrices that are not drawn."""
    goal_text = GOAL_TEXTS[measured.goal]
    scatters = [
        Figure(f"scatter-{metric.key}", f"As Figure 2: {metric.title}, {goal_text}", measured.scatter(metric))
        for metric in measured.metrics
        if len(measured.models_by(metric)) >= FEWEST_MODELS
    ]
    matrices = [
        Figure(
            f"transfer-{goal}-{_file_name(attack)}",
            f"As Figure {number}: {attack}, {GOAL_TEXTS[goal]}",
            transfer_matrix(measured, goal, attack),
        )
        for goal, attack, number in _drawn(measured)
        if (goal, attack) in measured.outcomes
    ]
    return [*_sweeps(measured), *scatters, *_transfer_by_kappa(measured), *matrices]


def _drawn(measured: SuMeasurements) -> list[tuple[GoalName, str, str]]:
    """Name the matrices of the paper's figures: each attack, at its weakest and its strongest setting."""
    settings = measured.settings
    ends = sorted({settings.iterations[0], settings.iterations[-1]})
    iterated = [settings.iterated(settings.iterations[0], settings.fixed).name]
    iterated += [settings.iterated(steps, settings.transfer_eps[-1]).name for steps in ends]
    elastic = settings.minimum_attacks(tuple(sorted({settings.kappas[0], settings.kappas[-1]})))
    fast = [fgsm_name(n) for n in sorted({settings.transfer_eps[0], settings.transfer_eps[-1]})]
    every = [(name, "3") for name in fast] + [(name, "4") for name in iterated]
    every += [(attack.name, "5" if attack.name.startswith("EAD") else "5, for C&W") for attack in elastic]
    targeted = [(iterated[-1], "4"), (elastic[-1].name, "5")]
    found: list[tuple[GoalName, str, str]] = [("untargeted", *one) for one in every]
    return [*found, *(("random", *one) for one in targeted)]


def _sweeps(measured: SuMeasurements) -> list[Figure]:
    """Return Figure 1: success over eps, iterations and kappa."""
    settings = measured.settings
    fast = {format_eps(n / 255): SuAttack(fgsm_name(n), "fgsm", settings.iterated(1, n).norm, 1) for n in settings.eps}
    iterated = {str(steps): settings.iterated(steps, settings.fixed) for steps in settings.iterations}
    by_kappa = settings.minimum_attacks(settings.kappas)
    carlini, elastic = (
        {str(attack.kappa): attack for attack in by_kappa if attack.name.startswith(start)} for start in ("C&W", "EAD")
    )
    wanted: list[tuple[str, GoalName, str, str, dict[str, SuAttack]]] = [
        ("1a", "random", "FGSM", "eps", fast),
        ("1b", "untargeted", "FGSM", "eps", fast),
        ("1c", "random", "I-FGSM", "iterations", iterated),
        ("1d", "random", "C&W", "kappa", carlini),
        ("1e", "random", "EAD-L1", "kappa", elastic),
    ]
    made = []
    for number, goal, attack, axis, sweep in wanted:
        frame = _success(measured, goal, sweep)
        if len(frame.columns) and len(frame) > 1:
            title = f"As Figure {number}: success of {attack}, {GOAL_TEXTS[goal]}"
            note = f"of the {_images(measured, goal, sweep)} images at most that a model classifies correctly"
            family = {model.label: model.family for model in measured.models}
            groups = tuple(family[label] for label in frame.columns)
            if len(groups) < len(measured.models):
                note = f"the {len(groups)} of {len(measured.models)} models that it met; {note}"
            made.append(Figure(f"figure{number}", title, Lines(frame, axis, "success rate", note=note, groups=groups)))
    return made


def _transfer_by_kappa(measured: SuMeasurements) -> list[Figure]:
    """Return the mean transfer to other models over kappa, of attacks that met every model with each kappa."""
    settings = measured.settings
    if len(measured.models) < FEWEST_MODELS:
        return []
    columns: dict[str, dict[str, float]] = {}
    for goal in settings.transfer_goals:
        for attack in settings.minimum_attacks(settings.kappas):
            found = measured.outcomes.get((goal, attack.name))
            if found is not None and found["source"].nunique() == len(measured.models):
                rates = transfer_matrix(measured, goal, attack.name).rates
                others = rates[rates.index].to_numpy(float)[~np.eye(len(rates), dtype=bool)]
                name = f"{attack.name.partition(' ')[0]}, {GOAL_TEXTS[goal]}"
                columns.setdefault(name, {})[str(attack.kappa)] = float(others[np.isfinite(others)].mean())
    whole = {name: row for name, row in columns.items() if len(row) == len(settings.kappas)}
    frame = pd.DataFrame(whole)
    if len(frame) < 2:
        return []
    title = "As Figure 5, over kappa: transfer to other models"
    note = "mean over pairs of models; where the attack fails on the source, its example does not transfer"
    return [Figure("figure5-kappa", title, Lines(frame, "kappa", "rate of transfer", note=note))]


def _success(measured: SuMeasurements, goal: GoalName, sweep: dict[str, SuAttack]) -> pd.DataFrame:
    rates = {
        model.label: {at: measured.success(model, goal, attack) for at, attack in sweep.items()}
        for model in measured.models
    }
    known = {label: {at: rate.value for at, rate in row.items() if rate} for label, row in rates.items()}
    most = max((len(row) for row in known.values()), default=0)
    whole = {label: row for label, row in known.items() if row and len(row) == most}  # a line needs all its points
    return pd.DataFrame(whole)


def _images(measured: SuMeasurements, goal: GoalName, sweep: dict[str, SuAttack]) -> int:
    rates = [measured.success(model, goal, attack) for model in measured.models for attack in sweep.values()]
    return max((rate.total for rate in rates if rate), default=0)


def _file_name(attack: str) -> str:
    return slug(attack.lower().replace("κ=", "").replace("&", "-"), keep="-").strip("-")
