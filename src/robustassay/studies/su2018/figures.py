"""The counterparts of Figures 2 to 5: scatter plots of accuracy and robustness, and transfer matrices."""

from robustassay.studies.page import Figure
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.settings import GOAL_TEXTS
from robustassay.studies.su2018.tables import matrix


def figures(measured: SuMeasurements) -> list[Figure]:
    """Return every figure that there are results for."""
    goal_text = GOAL_TEXTS[measured.goal]
    scatters = [
        Figure(f"scatter-{metric.key}", f"As Figure 2: {metric.title}, {goal_text}", measured.scatter(metric))
        for metric in measured.metrics
        if len(measured.models_by(metric))
    ]
    matrices = [
        Figure(
            f"transfer-{goal}-{_file_name(attack)}",
            f"As Figures 3 to 5: {attack}, {GOAL_TEXTS[goal]}",
            matrix(measured, goal, attack),
        )
        for goal, attack in measured.outcomes
    ]
    return [*scatters, *matrices]


def _file_name(attack: str) -> str:
    letters = attack.lower().replace("κ=", "")
    return "".join(letter if letter.isalnum() else "-" for letter in letters).strip("-")
