"""Limits the number of requests per second and client."""

import time
from collections.abc import Callable
from typing import Final, final

from robustassay.serve.http_error import HttpError

MAX_CLIENTS: Final = 10_000
"""Clients remembered at once; this bounds the memory, whoever sends requests."""


@final
class RateLimiter:
    """A token bucket per client; a bucket holds the tokens of one second."""

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, and the time of that count

    def check(self, client: str) -> None:
        """Take a token from the client's bucket, or raise an error 429 if it is empty."""
        if self._per_second is None:
            return
        rate, now = self._per_second, self._clock()
        capacity = max(1.0, rate)
        tokens, counted_at = self._buckets.pop(client, (capacity, now))  # popped, so that the oldest stays first
        tokens = min(capacity, tokens + (now - counted_at) * rate)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        while len(self._buckets) > MAX_CLIENTS:
            del self._buckets[next(iter(self._buckets))]
        if not allowed:
            wait = (1 - tokens) / rate
            raise HttpError(429, f"More than {rate:g} requests per second: wait {wait:.2f} s.", retry_after=wait)
