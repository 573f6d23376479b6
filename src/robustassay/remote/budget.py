"""The query and cost budget of a service. A request reserves its cost before it is sent, so no cap is exceeded."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, final

from robustassay.errors import Interrupted
from robustassay.remote.adapter import Limits

SHOW_EVERY_S: Final = 5.0
"""Seconds between two lines of the live counter."""


@final
class QueryBudget:
    """Counts the images sent, and those answered by purpose. All threads share it."""

    def __init__(self, limits: Limits, show: Callable[[str], None]) -> None:
        self._limits, self._show = limits, show
        self._lock = threading.Lock()
        self._next = time.monotonic() + SHOW_EVERY_S
        self.sent = 0
        self.answered: Counter[str] = Counter()
        self.retried = 0
        self.saved = 0  # answers found in the cache

    def reserve(self, images: int) -> None:
        """Reserve the queries of one request; raise where the cap leaves too few."""
        cap = self._limits.most_queries
        with self._lock:
            if cap is not None and self.sent + images > cap:
                raise Interrupted(
                    f"The cap of {cap} queries is reached ({self.sent} sent{self._cost_text()}): finished samples are "
                    "safe; raise the cap and run the same command again, and no answer is paid for twice."
                )
            self.sent += images

    def refund(self, images: int) -> None:
        """Return the queries of a request that the service did not process."""
        with self._lock:
            self.sent -= images

    def count_answers(self, purpose: str, images: int) -> None:
        """Count answers."""
        with self._lock:
            self.answered[purpose] += images
            now = time.monotonic()
            due, self._next = now >= self._next, max(self._next, now + SHOW_EVERY_S if now >= self._next else 0)
        if due:
            self._show(str(self))

    def count_retry(self) -> None:
        """Count a request that is sent again."""
        with self._lock:
            self.retried += 1

    @property
    def cost(self) -> float:
        """Cost so far, in the unit of `cost_per_query`."""
        return self.sent * self._limits.cost_per_query

    def _cost_text(self) -> str:
        return f", cost {self.cost:.4g}" if self._limits.cost_per_query else ""

    def __str__(self) -> str:
        cap = self._limits.most_queries
        limit = "" if cap is None else f" of {cap}"
        parts = ", ".join(f"{count} for {purpose}" for purpose, count in sorted(self.answered.items()))
        return (
            f"{self.sent}{limit} queries sent{self._cost_text()}; answered {parts or 'none'}; "
            f"{self.saved} known from before, {self.retried} tries again"
        )
