"""What may still be asked of a service, and what it has cost: reserved before a request leaves, so never exceeded."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, final

from robustassay.errors import Interrupted
from robustassay.remote.adapter import Limits

EVERY_S: Final = 5.0
"""How often the live counter speaks."""


@final
class Purse:
    """Counts images sent, by purpose; shared by all threads."""

    def __init__(self, limits: Limits, tell: Callable[[str], None]) -> None:
        self._limits, self._tell = limits, tell
        self._lock = threading.Lock()
        self._next = time.monotonic() + EVERY_S
        self.sent = 0
        self.answered: Counter[str] = Counter()
        self.retried = 0
        self.saved = 0  # answers that were known already

    def reserve(self, images: int) -> None:
        """Take what a request may cost; refuse where the cap leaves too little."""
        cap = self._limits.most_queries
        with self._lock:
            if cap is not None and self.sent + images > cap:
                raise Interrupted(
                    f"The cap of {cap} queries is reached ({self.sent} sent{self._priced()}): finished samples are "
                    "safe; raise the cap and run the same command again, and no answer is paid for twice."
                )
            self.sent += images

    def refund(self, images: int) -> None:
        """Give back what a request took that the service never worked on."""
        with self._lock:
            self.sent -= images

    def book(self, purpose: str, images: int) -> None:
        """Note answers that came."""
        with self._lock:
            self.answered[purpose] += images
            now = time.monotonic()
            due, self._next = now >= self._next, max(self._next, now + EVERY_S if now >= self._next else 0)
        if due:
            self._tell(str(self))

    def note_retry(self) -> None:
        """Count a request that had to be sent again."""
        with self._lock:
            self.retried += 1

    @property
    def cost(self) -> float:
        """What was spent, in whatever unit a query's cost has."""
        return self.sent * self._limits.cost_per_query

    def _priced(self) -> str:
        return f", cost {self.cost:.4g}" if self._limits.cost_per_query else ""

    def __str__(self) -> str:
        cap = self._limits.most_queries
        limit = "" if cap is None else f" of {cap}"
        parts = ", ".join(f"{count} for {purpose}" for purpose, count in sorted(self.answered.items()))
        return (
            f"{self.sent}{limit} queries sent{self._priced()}; answered {parts or 'none'}; "
            f"{self.saved} known from before, {self.retried} tries again"
        )
