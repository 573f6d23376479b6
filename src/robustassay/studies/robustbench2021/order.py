"""The order of the tasks: what most of the page rests on first, so that a time limit cuts the rest.

Within a kind, models that do not fall at once come first, the largest of them first: they take longest, and processes
side by side then end together.
"""

from collections.abc import Sequence
from typing import Final

from robustassay.studies.analyses.model_measurements import ATTACKED, TEST, card_of
from robustassay.studies.robustbench2021.further_runs import L2, SQUARE
from robustassay.studies.robustbench2021.settings import FALLS, PASSES
from robustassay.studies.task import Task

OTHERS: Final = 8


def in_order(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Sort tasks by their kind, and each kind by how long its models take."""
    lengths = {model: _length(model) for model in {task.key[0] for task in tasks}}
    return tuple(sorted(tasks, key=lambda task: (_turn(task), *lengths[task.key[0]])))


def _turn(task: Task) -> int:
    _, kind, data = task.key
    if kind != "run":
        return {"predictions": 1, "adversarial predictions": 1, "lipschitz": 5, "transfer": 6}[kind]
    if data.startswith(ATTACKED):
        return 4
    return {TEST: 0, SQUARE: 3, L2: 7}.get(data, 2 if data in PASSES else OTHERS)


def _length(model: str) -> tuple[bool, int]:
    """Sort before others what takes longer; what is not of the zoo keeps its order."""
    card = card_of(model)
    if card is None:
        return False, 0
    return card.robust_accuracy <= FALLS, -card.parameters
