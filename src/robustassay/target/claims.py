"""The best claim of each row: the closest or the first candidate that counts.

To know whether a candidate counts, a value must be copied from the device, and a GPU then waits for all work before it.
So candidates are stored as they come and compared together when the claims are next read: once per iteration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, final

import torch
from torch import Tensor

NEVER: Final = -1
"""Iteration and query count of a row without a claim."""

SURER: Final = (2.0, 4.0, 8.0)
"""Margins, in standard errors, of further claims on a random model that are kept for an attack that seeks the minimum:
the closest of thousands of points often reached the goal by chance, and then does not verify."""

ALL: Final = 100
CLOSER: Final = 0.998
"""So many improvements of a row are all recorded; further ones if they are closer by this factor."""

MAX_PENDING: Final = 64
MAX_PENDING_VALUES: Final = 1 << 26
"""Candidates, and values of them, that may be stored, which takes a copy; with more, the wait for the device is
negligible."""


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
        self._pending_values = 0
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
        self._pending_values += candidates.x.numel()
        if self._pending_values > MAX_PENDING_VALUES or len(self._pending) >= MAX_PENDING:
            self.settle()
        else:
            self._pending[-1] = replace(candidates, x=candidates.x.clone())

    def settle(self) -> "BestClaims":
        """Compare the stored candidates with the claims, in the order they came."""
        pending, self._pending, self._pending_values = self._pending, [], 0
        for _, alike in groupby(pending, key=_kind):
            group = list(alike)
            if self._closest and len(group) > 1:
                self._compare_in_turn(group)
            else:
                for candidates in group:
                    self._compare(candidates)
        return self

    def _compare_in_turn(self, group: Sequence[Candidates]) -> None:
        """Compare candidates of the same rows as one after the other, with one wait for the device for all of them."""
        rows, in_turn = group[0].rows, group[0].in_turn
        found = torch.where(
            torch.stack([each.counts for each in group]), torch.stack([each.distance for each in group]), torch.inf
        )
        least, at = found.min(2)
        before = torch.cat((self.distance[rows][None], least)).cummin(0).values[:-1]
        better = least < before
        when, within = better.nonzero().unbind(1)
        if not len(when):
            return
        chosen = at[when, within]
        iteration = torch.stack([each.iteration for each in group])[when, within] + (chosen if in_turn else 0)
        query = torch.stack([each.queries for each in group])[when, within] + chosen + 1
        self._improvements.append((rows[within], iteration, query, least[when, within]))
        order = torch.arange(len(when), device=when.device)
        last = torch.full_like(rows, NEVER).scatter_reduce_(0, within, order, "amax")  # of each row, as they are sorted
        last = last[last >= 0]
        when, within, chosen = when[last], within[last], chosen[last]
        rows = rows[within]
        self.x_adv[rows] = torch.stack([each.x for each in group])[when, within, chosen]
        self.margin[rows] = torch.stack([each.margin for each in group])[when, within, chosen]
        self.distance[rows], self.stage[rows] = least[when, within], group[0].stage
        self.iteration[rows], self.query[rows] = iteration[last], query[last]

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

    def replace_by(self, other: "BestClaims", rows: Tensor) -> None:
        """Take the claims of these rows, and their history, from another list."""
        self.take_back(rows)
        for name in ("x_adv", "distance", "margin", "iteration", "query", "stage"):
            getattr(self, name)[rows] = getattr(other, name)[rows]
        for entry in other._improvements:
            kept = torch.isin(entry[0], rows)
            if kept.any():
                self._improvements.append(tuple(values[kept] for values in entry))

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

    def improvements(self, eps: Tensor) -> list[list[dict[str, float]]]:
        """Return, per row, the claims that were better than the one before: iteration, query and distance.

        Where claims improve thousands of times, those that are hardly closer are left out, but for the first one within
        the row's eps and the last one of all.
        """
        found: list[list[dict[str, float]]] = [[] for _ in range(len(self.distance))]
        last: dict[int, dict[str, float]] = {}
        radii = eps.tolist()
        if self._improvements:
            columns = (torch.cat(column).tolist() for column in zip(*self._improvements, strict=True))
            for row, iteration, query, distance in zip(*columns, strict=True):
                kept, last[row] = found[row], {"iteration": iteration, "query": query, "distance": distance}
                before = kept[-1]["distance"] if kept else math.inf
                if len(kept) < ALL or distance <= CLOSER * before or distance <= radii[row] < before:
                    kept.append(last[row])
        for row, claim in last.items():
            if found[row][-1] is not claim:
                found[row].append(claim)
        return found


def _kind(candidates: Candidates) -> tuple[object, ...]:
    """Return what candidates that are compared together have in common."""
    return id(candidates.rows), candidates.stage, candidates.in_turn, candidates.counts.shape
