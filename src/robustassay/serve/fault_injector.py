"""Faults on purpose, so that clients can be tested against a service that misbehaves."""

import asyncio
import random
from dataclasses import dataclass, fields
from typing import Self, final

from robustassay.errors import BadRequest
from robustassay.serve.refusal import Refusal


@final
@dataclass(frozen=True)
class Faults:
    """How often what goes wrong; nothing by default."""

    latency: float = 0.0  # seconds every answer takes longer
    errors: float = 0.0  # part of the requests that get a 500
    hangs: float = 0.0  # part whose answer is worked out and then held back
    hang_seconds: float = 30.0
    bursts: float = 0.0  # part that start a burst of 429s
    burst_length: float = 10.0
    seed: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read settings such as "errors=0.1,hangs=0.1"."""
        try:
            pairs = (part.split("=") for part in text.split(",") if part.strip())
            return cls(**{name.strip(): float(value) for name, value in pairs})
        except (TypeError, ValueError):
            known = ", ".join(field.name for field in fields(cls))
            raise BadRequest(f"Faults are written as errors=0.1,hangs=0.1; known are {known}; not {text!r}.") from None

    def __post_init__(self) -> None:
        if not all(0 <= getattr(self, name) <= 1 for name in ("errors", "hangs", "bursts")):
            raise BadRequest("errors, hangs and bursts are parts of all requests: give numbers from 0 to 1.")
        if min(self.latency, self.hang_seconds, self.burst_length) < 0:
            raise BadRequest("Faults last no less than no time: give seconds and lengths of 0 or more.")


@final
class Mischief:
    """Draws the faults of one running service."""

    def __init__(self, faults: Faults) -> None:
        self._faults, self._random = faults, random.Random(faults.seed)
        self._refusals_left = 0

    async def before(self) -> None:
        """Delay a request, or fail it before any work is done."""
        if self._faults.latency:
            await asyncio.sleep(self._faults.latency)
        if self._refusals_left == 0 and self._random.random() < self._faults.bursts:
            self._refusals_left = round(self._faults.burst_length)
        if self._refusals_left:
            self._refusals_left -= 1
            raise Refusal(429, "Too many requests (injected): try again.")
        if self._random.random() < self._faults.errors:
            raise Refusal(500, "The service failed (injected): try again.")

    async def after(self) -> None:
        """Hold an answer back until its client has given up."""
        if self._random.random() < self._faults.hangs:
            await asyncio.sleep(self._faults.hang_seconds)
