"""Shared by cw-fast and ead-fast: rows that descend side by side, each with its own c, learning rate and clock."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from robustassay.attacks.common.penalty_search import GROWTH

WINDOW: Final = 10
"""Steps between two checks of progress, or a tenth of all steps if that is more."""

LEAST: Final = 0.5
"""The smallest c that is tried, as a part of the c that a linear model needs."""

FINER: Final = 0.5
"""The learning rate of a descent that starts at a success, as a part of the rate of the descent before."""

GROWTH_FROM_ESTIMATE: Final = 3.0
"""The factor between two values of c if the first was estimated, as long as none was large enough."""


@dataclass
class RowState:
    """Tensors with one entry per row: the fields of the classes that extend it."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The fields in order, for `view.drop_finished`."""
        return tuple(vars(self).values())


def progress_interval(steps: int) -> int:
    """Return the steps between two checks of progress: a divisor of `steps`, so that all rows are checked together."""
    shortest = min(steps, max(WINDOW, steps // 10))
    return next(n for n in range(shortest, steps + 1) if steps % n == 0)


def first_c(initial_c: float, needed: Tensor, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the first c and its lower limit per row: as given, or from the c that a linear model needs."""
    if initial_c:
        return torch.full_like(needed, initial_c), torch.zeros_like(needed)
    return factor * needed, LEAST * needed


def growth_of(initial_c: float) -> float:
    """Return the factor between two values of c as long as none was large enough."""
    return GROWTH if initial_c else GROWTH_FROM_ESTIMATE
