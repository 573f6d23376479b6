"""The search for the weight c of the penalty in "distance + c * hinge" (Carlini & Wagner 2017, section V.B).

A small c leaves the image correctly classified, a large one moves it further than necessary. The search multiplies c
until the attack succeeds, then bisects between the largest c that failed and the smallest that succeeded.
"""

from dataclasses import dataclass
from typing import Final, Self, final

import torch
from torch import Tensor

GROWTH: Final = 10.0
"""The factor between two values of c as long as none was large enough."""

SHORTEST_INTERVAL: Final = 100
"""The fewest steps between two checks for an early stop: within fewer, the loss may rise because Adam overshoots."""


@final
@dataclass(frozen=True)
class PenaltySearch:
    """One search per row, in float64."""

    c: Tensor
    low: Tensor  # the largest c that failed
    high: Tensor  # the smallest c that succeeded

    @classmethod
    def start(cls, initial_c: float, x0: Tensor) -> Self:
        """Begin all rows with the same c."""
        c = torch.full((len(x0),), initial_c, dtype=torch.float64, device=x0.device)
        return cls(c, torch.zeros_like(c), torch.full_like(c, torch.inf))

    def next(self, succeeded: Tensor) -> Self:
        """Return the search after one descent per row."""
        every = torch.ones_like(succeeded)
        return type(self)(*next_c(self.c, self.low, self.high, every, succeeded, GROWTH))

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The fields in order, for `view.drop_finished`."""
        return self.c, self.low, self.high


def stalled(loss: Tensor, loss_before: Tensor) -> Tensor:
    """Return the rows whose loss did not fall since the check before, by the authors' rule."""
    return loss > 0.9999 * loss_before


def check_interval(steps: int) -> int:
    """Return the steps between two checks for an early stop: a tenth of all, as in the authors' code, or more."""
    return max(SHORTEST_INTERVAL, steps // 10)


def next_c(
    c: Tensor, low: Tensor, high: Tensor, ended: Tensor, succeeded: Tensor, growth: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next c, low and high of the rows whose descent has ended; the other rows keep theirs."""
    low, high = torch.where(ended & ~succeeded, c, low), torch.where(ended & succeeded, c, high)
    return torch.where(ended, torch.where(high.isinf(), growth * c, (low + high) / 2), c), low, high
