"""The query and cost budget of a service. A request reserves its images before it is sent, so no cap is exceeded.

Two counts differ: every try sends its images, but a try that the service refuses, as by 429, is not charged.
"""

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
    """Counts the images sent, those that may be charged, and those answered by purpose. All threads share it."""

    def __init__(self, limits: Limits, show: Callable[[str], None]) -> None:
        self._limits, self._show = limits, show
        self._lock = threading.Lock()
        self._next = time.monotonic() + SHOW_EVERY_S
        self.sent = 0  # every try included, whatever came back
        self.charged = 0  # those that the service may charge
        self.answered: Counter[str] = Counter()
        self.retried = 0
        self.saved = 0  # answers found in the cache

    def reserve(self, images: int) -> None:
        """Reserve the images of one request; raise where a cap leaves too few."""
        limits = self._limits
        then = (
            "finished samples are safe; raise the cap and run the same command again, and no answer is paid for twice."
        )
        with self._lock:
            if limits.max_queries is not None and self.sent + images > limits.max_queries:
                raise Interrupted(
                    f"The cap of {limits.max_queries} queries is reached ({self.sent} sent{self._cost_text()}): {then}"
                )
            if limits.most_charged is not None and self.charged + images > limits.most_charged:
                raise Interrupted(
                    f"The cap of {limits.max_cost:g} on the cost is reached ({self.charged} queries may be "
                    f"charged{self._cost_text()}): {then}"
                )
            self.sent += images
            self.charged += images

    def take_back(self, images: int) -> None:
        """Do not count a request that never left this machine."""
        with self._lock:
            self.sent -= images
            self.charged -= images

    def refund(self, images: int) -> None:
        """Do not charge a request that the service did not process; its images count as sent."""
        with self._lock:
            self.charged -= images

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
        return self.charged * self._limits.cost_per_query

    def _cost_text(self) -> str:
        return f", cost {self.cost:.4g}" if self._limits.cost_per_query else ""

    def __str__(self) -> str:
        cap = self._limits.max_queries
        limit = "" if cap is None else f" of {cap}"
        parts = ", ".join(f"{count} for {purpose}" for purpose, count in sorted(self.answered.items()))
        return (
            f"{self.sent}{limit} queries sent, {self.charged} may be charged{self._cost_text()}; "
            f"answered {parts or 'none'}; {self.saved} known from before, {self.retried} tries again"
        )
