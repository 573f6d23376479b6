"""Limits the number of images per second and client."""

import time
from collections.abc import Callable
from typing import Final, final

from robustassay.serve.clients import machine_of
from robustassay.serve.http_error import HttpError

MAX_CLIENTS: Final = 10_000
"""Clients remembered at once; this bounds the memory, whoever sends requests."""


@final
class RateLimiter:
    """A token bucket per client; an image takes a token, and a bucket holds the tokens of one second."""

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, and the time of that count

    def check(self, client: str, images: int = 1) -> None:
        """Take the tokens of the images from the client's bucket, or raise an error 429 if it holds fewer."""
        if self._per_second is None or not images:
            return
        rate, now, client = self._per_second, self._clock(), machine_of(client)
        capacity = max(1.0, rate)
        tokens, counted_at = self._buckets.pop(client, (capacity, now))  # popped, so that the oldest stays first
        tokens = min(capacity, tokens + (now - counted_at) * rate)
        allowed = tokens >= images
        self._buckets[client] = (tokens - images if allowed else tokens, now)
        while len(self._buckets) > MAX_CLIENTS:
            del self._buckets[next(iter(self._buckets))]
        if not allowed:
            wait = (images - tokens) / rate
            raise HttpError(429, f"More than {rate:g} images per second: wait {wait:.2f} s.", retry_after=wait)

    def check_batch(self, client: str, images: int) -> None:
        """Take the tokens of a request whose first image has been paid; a batch above the bucket can never pass."""
        if self._per_second is not None and images > max(1.0, self._per_second):
            most = int(max(1.0, self._per_second))
            raise HttpError(413, f"A request may hold {most} images at this rate limit: send fewer at once.")
        self.check(client, images - 1)
