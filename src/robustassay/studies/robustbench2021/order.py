"""The order of the tasks: what most of the page rests on first, so that a time limit cuts the rest.

Within a kind, models that do not fall at once come first, the largest of them first: they take longest, and processes
side by side then end together. Square with its restarts is one long sequence for one process, so it starts first.
"""

from collections.abc import Sequence
from typing import Final

from robustassay.studies.analyses.model_measurements import ATTACKED, TEST, card_of
from robustassay.studies.robustbench2021.further_runs import L2, square_names
from robustassay.studies.robustbench2021.settings import FALLS, PASSES
from robustassay.studies.task import Task

SEEDS: Final = 7
"""The place of the runs with other seeds, which are named by their numbers."""

KINDS: Final = {"predictions": 2, "adversarial predictions": 2, "lipschitz": 5, "transfer": 6}
RUNS: Final = {**dict.fromkeys(square_names(), 0), TEST: 1, **dict.fromkeys(PASSES, 3), L2: 8}


def in_order(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Sort tasks by their kind, and each kind by how long its models take."""
    lengths = {model: _length(model) for model in {task.key[0] for task in tasks}}
    return tuple(sorted(tasks, key=lambda task: (_turn(task), *lengths[task.key[0]])))


def _turn(task: Task) -> int:
    _, kind, data = task.key
    if kind != "run":
        return KINDS[kind]
    return 4 if data.startswith(ATTACKED) else RUNS.get(data, SEEDS)


def _length(model: str) -> tuple[bool, int]:
    """Sort before others what takes longer; what is not of the zoo keeps its order."""
    card = card_of(model)
    if card is None:
        return False, 0
    return card.robust_accuracy <= FALLS, -card.parameters
