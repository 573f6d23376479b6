"""The best point by another objective than the distance of the threat, for attacks that report several."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

Cost = Callable[[Tensor], Tensor]
"""From flat perturbations `[..., n]` in float64 to the value of the objective."""


@final
class BestPoints:
    """Per row the point of least cost; the clean image, at infinite cost, where there is none."""

    def __init__(self, cost: Cost, centre: Tensor) -> None:
        self._cost, self._centre = cost, centre
        self.x_adv = centre.clone()
        self._least = torch.full((len(centre),), torch.inf, dtype=torch.float64, device=centre.device)

    @property
    def found(self) -> Tensor:
        """Say which rows have a point."""
        return self._least < torch.inf

    def add(self, rows: Tensor, x: Tensor, counts: Tensor) -> None:
        """Keep the point of least cost of those `[rows, q, ...]` that count, and of the one kept before."""
        delta = (x.double() - self._centre[rows][:, None].double()).flatten(2)
        least, at = torch.where(counts, self._cost(delta), torch.inf).min(1)
        better = least < self._least[rows]
        self._least[rows[better]] = least[better]
        self.x_adv[rows[better]] = x[better, at[better]]

    def remove(self, rows: Tensor) -> None:
        """Remove the points of these rows."""
        self._least[rows] = torch.inf
        self.x_adv[rows] = self._centre[rows]
