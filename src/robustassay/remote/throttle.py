"""Spaces requests evenly."""

import time
from typing import final


@final
class Throttle:
    """Starts at most this many requests per second."""

    def __init__(self, per_second: float | None) -> None:
        self._gap = 0.0 if per_second is None else 1 / per_second
        self._free_at = 0.0

    def reserve(self) -> float:
        """Reserve the next start; return the seconds until then."""
        now = time.monotonic()
        start = max(now, self._free_at)
        self._free_at = start + self._gap
        return start - now
