"""The best point by another objective than the threat's norm, for attacks that have more than one."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

Cost = Callable[[Tensor], Tensor]
"""From flat perturbations `[..., n]` in float64 to what each costs."""


@final
class BestPoints:
    """Per row, the cheapest point by one cost; clean images, at an infinite cost, where there is none."""

    def __init__(self, cost: Cost, centre: Tensor) -> None:
        self._cost, self._centre = cost, centre
        self.x_adv = centre.clone()
        self._paid = torch.full((len(centre),), torch.inf, dtype=torch.float64, device=centre.device)

    @property
    def found(self) -> Tensor:
        """Say which rows have a point."""
        return self._paid < torch.inf

    def offer(self, rows: Tensor, x: Tensor, counts: Tensor) -> None:
        """Keep the cheapest of the points `[rows, q, ...]` that count, where it is cheaper than the one kept."""
        delta = (x.double() - self._centre[rows][:, None].double()).flatten(2)
        least, at = torch.where(counts, self._cost(delta), torch.inf).min(1)
        better = least < self._paid[rows]
        self._paid[rows[better]] = least[better]
        self.x_adv[rows[better]] = x[better, at[better]]

    def forget(self, rows: Tensor) -> None:
        """Take back the points of these rows."""
        self._paid[rows] = torch.inf
        self.x_adv[rows] = self._centre[rows]
