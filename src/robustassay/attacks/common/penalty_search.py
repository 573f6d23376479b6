"""What attacks share that search for the least weight c of a hinge, by one descent after another."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

WINDOW: Final = 10
"""Steps after which progress is looked at, or a tenth of all steps if that is more."""

LEAST: Final = 0.5
"""The least c that is tried, as a part of what a linear model needs."""

FINER: Final = 0.5
"""The rate of a descent that begins at a success, as a part of the rate of the one before."""


@dataclass
class Rows:
    """Tensors with a row for each image on its way, as the fields of those that extend it."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, in the order of the fields."""
        return tuple(vars(self).values())


def window_of(steps: int) -> int:
    """Return the steps between two looks at progress, a divisor of all of them: all rows look at the same time."""
    shortest = min(steps, max(WINDOW, steps // 10))
    return next(n for n in range(shortest, steps + 1) if steps % n == 0)


def first_c(initial_c: float, needed: Tensor, ample: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the first c of each row, given or by what a linear model needs, and where the search may not go below."""
    if initial_c:
        return torch.full_like(needed, initial_c), torch.zeros_like(needed)
    return ample * needed, LEAST * needed


def growth_of(initial_c: float) -> float:
    """Return how many times as large the next c is as long as none was large enough; less if the first was no guess."""
    return 10.0 if initial_c else 3.0


def bisected(
    c: Tensor, low: Tensor, high: Tensor, over: Tensor, holds: Tensor, growth: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next c of the rows whose descent is over, given whether it was large enough, and where it must lie."""
    low, high = torch.where(over & ~holds, c, low), torch.where(over & holds, c, high)
    return torch.where(over, torch.where(high.isinf(), growth * c, (low + high) / 2), c), low, high
