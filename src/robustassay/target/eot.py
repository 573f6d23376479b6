"""Means over the draws of a model that draws random numbers (EOT, Athalye et al. 2018, arXiv:1707.07397).

Each draw is a call of its own: some models draw once per call, for all images of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True)
class Draws:
    """How many passes of a random model are averaged; 1 for a deterministic model."""

    count: int = 1

    def stack(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the logits of each draw, `[draws, n, classes]`."""
        return torch.stack([ask(x) for _ in range(self.count)])

    def logits(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the logits of each draw, `[n, draws, classes]`."""
        return self.stack(ask, x).transpose(0, 1)

    def mean_logits(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the mean of the logits over the draws, `[n, classes]`."""
        return ask(x) if self.count == 1 else self.logits(ask, x).mean(1)
