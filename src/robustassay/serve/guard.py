"""Who may ask, and how often."""

import hmac
import time
from collections.abc import Callable
from typing import Final, final

from robustassay.serve.config import Offer
from robustassay.serve.refusal import Refusal

MOST_CLIENTS: Final = 10_000
"""Clients remembered at once, so that strangers cannot fill the memory."""


@final
class Guard:
    """Checks the key of a request and takes a token from its client's bucket, which holds a second's worth."""

    def __init__(self, offer: Offer, clock: Callable[[], float] = time.monotonic) -> None:
        self._key, self._rate, self._clock = offer.api_key, offer.per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, and when that was

    def admit(self, client: str, key: str) -> None:
        """Let a request pass, or refuse it."""
        if self._key is not None and not hmac.compare_digest(self._key.encode(), key.encode()):
            raise Refusal(401, "The API key is missing or wrong: send it as the header X-API-Key.")
        if self._rate is not None:
            self._take(client, self._rate)

    def _take(self, client: str, rate: float) -> None:
        now, most = self._clock(), max(1.0, rate)
        left, then = self._buckets.pop(client, (most, now))  # popped, so that the oldest stands first
        left = min(most, left + (now - then) * rate)
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now)
        while len(self._buckets) > MOST_CLIENTS:
            del self._buckets[next(iter(self._buckets))]
        if not allowed:
            wait = (1 - left) / rate
            raise Refusal(429, f"More than {rate:g} requests a second: wait {wait:.2f} s.", retry_after=wait)
