"""Injects faults, to test clients against an unreliable service."""

import asyncio
import random
from dataclasses import dataclass, fields
from typing import Self, final

from robustassay.errors import BadRequest
from robustassay.serve.http_error import HttpError


@final
@dataclass(frozen=True)
class Faults:
    """The rate of each fault; no faults by default."""

    latency: float = 0.0  # seconds added to every response
    errors: float = 0.0  # fraction of requests answered with status 500
    hangs: float = 0.0  # fraction of responses delayed by hang_seconds
    hang_seconds: float = 30.0
    bursts: float = 0.0  # fraction of requests that start a burst of status 429
    burst_length: float = 10.0
    seed: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse settings such as "errors=0.1,hangs=0.1"."""
        try:
            pairs = (part.split("=") for part in text.split(",") if part.strip())
            return cls(**{name.strip(): float(value) for name, value in pairs})
        except (TypeError, ValueError):
            known = ", ".join(field.name for field in fields(cls))
            raise BadRequest(
                f"Faults are written as errors=0.1,hangs=0.1, not {text!r}; the names are {known}."
            ) from None

    def __post_init__(self) -> None:
        if not all(0 <= getattr(self, name) <= 1 for name in ("errors", "hangs", "bursts")):
            raise BadRequest("errors, hangs and bursts are fractions of requests: give numbers from 0 to 1.")
        if min(self.latency, self.hang_seconds, self.burst_length) < 0:
            raise BadRequest("latency, hang_seconds and burst_length must be 0 or more.")


@final
class FaultInjector:
    """Draws the faults of one running service at random."""

    def __init__(self, faults: Faults) -> None:
        self._faults, self._random = faults, random.Random(faults.seed)
        self._burst_left = 0

    async def before_answer(self) -> None:
        """Delay a request, or fail it before the model sees it."""
        if self._faults.latency:
            await asyncio.sleep(self._faults.latency)
        if self._burst_left == 0 and self._random.random() < self._faults.bursts:
            self._burst_left = round(self._faults.burst_length)
        if self._burst_left:
            self._burst_left -= 1
            raise HttpError(429, "Too many requests (injected): try again.")
        if self._random.random() < self._faults.errors:
            raise HttpError(500, "The service failed (injected): try again.")

    async def after_answer(self) -> None:
        """Delay a response until the client times out."""
        if self._random.random() < self._faults.hangs:
            await asyncio.sleep(self._faults.hang_seconds)
