"""Means over the draws of a model that draws random numbers (EOT, Athalye et al. 2018, arXiv:1707.07397).

Each draw is a call of its own: some models draw once per call, for all images of it. The majority of draws decides
what is a success, so no draw may outweigh the others in the mean: where the logits of one have many times the size of
those of another, as in a model that draws one of several networks, all get the same size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

UNEQUAL: Final = 4.0
"""The logits of draws are scaled where the largest spread over classes exceeds the median by more than this factor."""


@final
@dataclass(frozen=True)
class Draws:
    """How many passes of a random model are averaged; 1 for a deterministic model."""

    count: int = 1

    def stack(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the logits of each draw, `[draws, n, classes]`, none of which outweighs the others."""
        drawn = torch.stack([ask(x) for _ in range(self.count)])
        return drawn if self.count == 1 else of_equal_size(drawn)

    def logits(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the logits of each draw, `[n, draws, classes]`."""
        return self.stack(ask, x).transpose(0, 1)

    def mean_logits(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the mean of the logits over the draws, `[n, classes]`."""
        return ask(x) if self.count == 1 else self.logits(ask, x).mean(1)


def of_equal_size(drawn: Tensor) -> Tensor:
    """Scale the logits of draws, `[draws, n, classes]`, to the median spread, in the rows where spreads are unequal."""
    spread = (drawn.amax(2, keepdim=True) - drawn.amin(2, keepdim=True)).detach()
    median = spread.median(0, keepdim=True).values
    unequal = (spread.amax(0, keepdim=True) > UNEQUAL * median) & (median > 0) & (spread > 0)
    return drawn * torch.where(unequal, median / spread, 1.0)
