"""The points that rows have to show, booked when somebody looks at them.

To know whether a point is a success is to ask the device for a value, which makes a GPU wait for everything before it.
So points are taken down as they come and sorted out together, when the claims are next read: once an iteration.
"""

from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor

NEVER: Final = -1
"""Stands for an iteration or query count that did not happen."""

MOST_WAITING: Final = 1 << 26
"""Values in offers that may wait, and be copied for it; beside a larger one a look costs nothing."""


@final
@dataclass(frozen=True)
class Offer:
    """Points `[rows, q, ...]` of some rows, and which of them count; with what is known of each."""

    rows: Tensor
    x: Tensor
    counts: Tensor
    distance: Tensor
    margin: Tensor
    iteration: Tensor  # one a row, as is `queries`: how many were made before these points
    queries: Tensor
    stage: int


@final
class Claims:
    """Of each row the closest point offered, if that is sought, or else the first; clean images where there is none."""

    def __init__(self, centre: Tensor, closest: bool) -> None:
        rows, device = len(centre), centre.device
        self._centre, self._closest = centre, closest
        self._waiting: list[Offer] = []
        self._improvements: list[tuple[Tensor, ...]] = []
        self.x_adv = centre.clone()
        self.distance = torch.full((rows,), torch.inf, dtype=torch.float64, device=device)
        self.margin = torch.zeros(rows, device=device)
        self.iteration = torch.full((rows,), NEVER, dtype=torch.int64, device=device)
        self.query = self.iteration.clone()
        self.stage = torch.zeros_like(self.iteration)

    @property
    def made(self) -> Tensor:
        """Say which rows have a point to show."""
        return self.distance < torch.inf

    def clean(self, fallen: Tensor) -> None:
        """Claim clean images as they are, before any query."""
        self.distance[fallen] = 0.0
        self.iteration[fallen] = self.query[fallen] = 0

    def take(self, offer: Offer) -> None:
        """Take points down, as they are now: the attack may go on to change its tensors in place."""
        self._waiting.append(offer)
        if sum(one.x.numel() for one in self._waiting) > MOST_WAITING:
            self.settle()
        else:
            self._waiting[-1] = replace(offer, x=offer.x.clone())

    def settle(self) -> "Claims":
        """Sort out what is waiting, in the order it came."""
        waiting, self._waiting = self._waiting, []
        for offer in waiting:
            any_counts = offer.counts.any(1) if offer.counts.shape[1] > 1 else offer.counts[:, 0]
            with_any = any_counts.nonzero().squeeze(1)
            if len(with_any):
                self._sort_out(offer, with_any)
        return self

    def _sort_out(self, offer: Offer, within: Tensor) -> None:
        rows, counts, distance = offer.rows[within], offer.counts[within], offer.distance[within]
        if self._closest:
            least, at = torch.where(counts, distance, torch.inf).min(1)
            better = least < self.distance[rows]
        else:
            at = counts.int().argmax(1)
            better = ~self.made[rows]
        rows, within, at = rows[better], within[better], at[better]
        self.x_adv[rows] = offer.x[within, at]
        self.distance[rows] = offer.distance[within, at]
        self.margin[rows] = offer.margin[within, at]
        self.iteration[rows] = offer.iteration[within]
        self.query[rows] = offer.queries[within] + at + 1
        self.stage[rows] = offer.stage
        self._improvements.append((rows, self.iteration[rows], self.query[rows], self.distance[rows]))

    def take_back(self, rows: Tensor) -> None:
        """Forget the claims of these rows, and all that led to them."""
        self.distance[rows] = torch.inf
        self.x_adv[rows] = self._centre[rows]
        self.stage[rows] = 0
        self._improvements = [
            tuple(values[kept] for values in entry)
            for entry in self._improvements
            if (kept := ~torch.isin(entry[0], rows)).any()
        ]

    def improvements(self) -> list[list[dict[str, float]]]:
        """Return, row by row, every claim that was better than the one before: when it came, and its distance."""
        found: list[list[dict[str, float]]] = [[] for _ in range(len(self.distance))]
        if self._improvements:
            columns = (torch.cat(column).tolist() for column in zip(*self._improvements, strict=True))
            for row, iteration, query, distance in zip(*columns, strict=True):
                found[row].append({"iteration": iteration, "query": query, "distance": distance})
        return found
