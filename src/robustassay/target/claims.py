"""The best claim of each row: the closest or the first candidate that counts.

To know whether a candidate counts, a value must be copied from the device, and a GPU then waits for all work before it.
So candidates are stored as they come and compared together when the claims are next read: once per iteration.
"""

from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor

NEVER: Final = -1
"""Iteration and query count of a row without a claim."""

MAX_PENDING_VALUES: Final = 1 << 26
"""Values of candidates that may be stored, which takes a copy; with more, the wait for the device is negligible."""


@final
@dataclass(frozen=True)
class Candidates:
    """Points `[rows, q, ...]` of some rows, which of them count, and their distances and margins."""

    rows: Tensor
    x: Tensor
    counts: Tensor
    distance: Tensor
    margin: Tensor
    iteration: Tensor  # one per row, as `queries`: their number before these points
    queries: Tensor
    stage: int
    in_turn: bool = False  # whether each point is an iteration of its own


@final
class BestClaims:
    """Per row the closest candidate, or the first one; the clean image where there is none."""

    def __init__(self, centre: Tensor, closest: bool) -> None:
        rows, device = len(centre), centre.device
        self._centre, self._closest = centre, closest
        self._pending: list[Candidates] = []
        self._improvements: list[tuple[Tensor, ...]] = []
        self.x_adv = centre.clone()
        self.distance = torch.full((rows,), torch.inf, dtype=torch.float64, device=device)
        self.margin = torch.zeros(rows, device=device)
        self.iteration = torch.full((rows,), NEVER, dtype=torch.int64, device=device)
        self.query = self.iteration.clone()
        self.stage = torch.zeros_like(self.iteration)

    @property
    def made(self) -> Tensor:
        """Say which rows have a claim."""
        return self.distance < torch.inf

    def claim_clean(self, rows: Tensor) -> None:
        """Claim clean images, before any query."""
        self.distance[rows] = 0.0
        self.iteration[rows] = self.query[rows] = 0

    def add(self, candidates: Candidates) -> None:
        """Store candidates, with a copy of their points: the attack may change its tensors in place."""
        self._pending.append(candidates)
        if sum(each.x.numel() for each in self._pending) > MAX_PENDING_VALUES:
            self.settle()
        else:
            self._pending[-1] = replace(candidates, x=candidates.x.clone())

    def settle(self) -> "BestClaims":
        """Compare the stored candidates with the claims, in the order they came."""
        pending, self._pending = self._pending, []
        for candidates in pending:
            self._compare(candidates)
        return self

    def _compare(self, candidates: Candidates) -> None:
        rows, counts = candidates.rows, candidates.counts
        if self._closest:
            least, at = torch.where(counts, candidates.distance, torch.inf).min(1)
            better = least < self.distance[rows]
        else:
            at = counts.int().argmax(1)
            better = counts.any(1) & ~self.made[rows]
        within = better.nonzero().squeeze(1)  # the only wait for the device
        if not len(within):
            return
        rows, at = rows[within], at[within]
        self.x_adv[rows] = candidates.x[within, at]
        self.distance[rows] = candidates.distance[within, at]
        self.margin[rows] = candidates.margin[within, at]
        self.iteration[rows] = candidates.iteration[within] + (at if candidates.in_turn else 0)
        self.query[rows] = candidates.queries[within] + at + 1
        self.stage[rows] = candidates.stage
        self._improvements.append((rows, self.iteration[rows], self.query[rows], self.distance[rows]))

    def take_back(self, rows: Tensor) -> None:
        """Remove the claims of these rows and their history."""
        self.distance[rows] = torch.inf
        self.x_adv[rows] = self._centre[rows]
        self.stage[rows] = 0
        self._improvements = [
            tuple(values[kept] for values in entry)
            for entry in self._improvements
            if (kept := ~torch.isin(entry[0], rows)).any()
        ]

    def improvements(self) -> list[list[dict[str, float]]]:
        """Return, per row, every claim that was better than the one before: iteration, query and distance."""
        found: list[list[dict[str, float]]] = [[] for _ in range(len(self.distance))]
        if self._improvements:
            columns = (torch.cat(column).tolist() for column in zip(*self._improvements, strict=True))
            for row, iteration, query, distance in zip(*columns, strict=True):
                found[row].append({"iteration": iteration, "query": query, "distance": distance})
        return found
