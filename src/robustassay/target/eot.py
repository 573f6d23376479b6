"""Means over the draws of a model that draws random numbers (EOT, Athalye et al. 2018, arXiv:1707.07397)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from torch import Tensor


@final
@dataclass(frozen=True)
class Draws:
    """How many passes of a random model are averaged; 1 for a deterministic model."""

    count: int = 1

    def repeat(self, images: Tensor) -> Tensor:
        """Repeat the whole batch once per draw."""
        return images.repeat(self.count, *(1,) * (images.dim() - 1)) if self.count > 1 else images

    def logits(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the logits of each draw, `[n, draws, classes]`."""
        return ask(x.repeat_interleave(self.count, 0)).view(len(x), self.count, -1)

    def mean_logits(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the mean of the logits over the draws, `[n, classes]`."""
        return ask(x) if self.count == 1 else self.logits(ask, x).mean(1)
