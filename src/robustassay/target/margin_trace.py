"""The lowest margin of each row so far, after 1, 2, 3, 4, 6, 8, 12, ... queries.

The places are the same for every row, so the trace of a row depends neither on its batch nor on how many points are
asked about together. Margins are stored as they come and compared together later, as claims are: an attack pays for
one addition per query.
"""

from typing import Final, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

PLACES: Final = (0, 1, *(2 ** (at // 2) if at % 2 == 0 else 3 * 2 ** ((at - 3) // 2) for at in range(2, 31)))
"""Queries after which the lowest margin is known; what came later counts at the end of the search."""

MAX_PENDING: Final = 256
MAX_PENDING_MARGINS: Final = 1 << 20
"""Queries, and margins in them, that may be stored before they are compared."""

Numbers = npt.NDArray[np.float64]


@final
class MarginTrace:
    """Per row, the lowest margin of the queries up to each of `PLACES`, and after the last of them."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self._places = torch.tensor(PLACES, device=device)
        self._lowest = torch.full((rows, len(PLACES) + 1), torch.inf, device=device)
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []
        self._pending_margins = 0

    def restart(self, rows: Tensor, margin: Tensor) -> None:
        """Begin with the margin of the clean image, and forget what these rows had."""
        self._settle()
        self._lowest[rows] = torch.inf
        self._lowest[rows, 0] = margin

    def add(self, rows: Tensor, queries: Tensor, margin: Tensor, sent: Tensor | None) -> None:
        """Store the margins `[rows, q]` of points that follow this many queries; points not `sent` are infinite."""
        steps = 1 if margin.shape[1] == 1 else torch.arange(1, margin.shape[1] + 1, device=rows.device)
        self._pending.append((rows, queries[:, None] + (steps if sent is None else sent.cumsum(1)), margin))
        self._pending_margins += margin.numel()
        if len(self._pending) >= MAX_PENDING or self._pending_margins > MAX_PENDING_MARGINS:
            self._settle()

    def lowest_so_far(self, spent: Tensor) -> tuple[Numbers, Numbers]:
        """Return numbers of queries, at most those that each row has spent, and the lowest margin up to each."""
        self._settle()
        queries = np.minimum(np.append(np.array(PLACES, float), np.inf), spent.cpu().numpy()[:, None])
        return queries, self._lowest.cummin(1).values.double().cpu().numpy()

    def _settle(self) -> None:
        if not self._pending:
            return
        rows = torch.cat([rows[:, None].expand_as(margin).flatten() for rows, _, margin in self._pending])
        queries, margin = (torch.cat([entry[at].flatten() for entry in self._pending]) for at in (1, 2))
        cell = rows * self._lowest.shape[1] + torch.bucketize(queries, self._places)
        self._lowest.view(-1).scatter_reduce_(0, cell, margin, "amin")
        self._pending, self._pending_margins = [], 0
