"""Reads the bodies of requests: within a deadline, and with a bound on what all of them hold in memory."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final, final

from fastapi import Request

from robustassay.serve.http_error import HttpError
from robustassay.serve.limits import Limits

SMALL_BODY: Final = 64 << 10
"""Bodies up to this size are always accepted, and parsed at once; the number of connections bounds them."""


@final
class BodyReader:
    """Reads bodies and counts the bytes that are held until their requests are answered."""

    def __init__(self, limits: Limits, max_bytes: int) -> None:
        self._limits, self._max_bytes = limits, max_bytes
        self._held: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def read(self, request: Request, client: str) -> AsyncIterator[bytes]:
        """Yield the body; its bytes count until the block ends."""
        _check_type(request)
        held = 0
        chunks: list[bytes] = []
        size = 0
        try:
            async with _deadline(self._limits.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._check_size(size)
                    grown = max(0, size - SMALL_BODY) - held
                    self._hold(client, grown)
                    held += grown
                    chunks.append(chunk)
            body = b"".join(chunks)
            chunks.clear()
            yield body
        finally:
            self._held[client] -= held
            if not self._held[client]:
                del self._held[client]

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise HttpError(
                413, f"The request exceeds {self._max_bytes} bytes: send a smaller image, or fewer at once."
            )

    def _hold(self, client: str, count: int) -> None:
        if not count:
            return
        limits = self._limits
        if self._held[client] + count > limits.held_bytes_per_client or self._held.total() + count > limits.held_bytes:
            raise HttpError(503, "Too many large requests at once: try again in a second.", retry_after=1)
        self._held[client] += count


def _check_type(request: Request) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "multipart/form-data" or "inference-header-content-length" in request.headers:
        raise HttpError(415, "Forms and binary tensors are not supported: send the file itself, or JSON, as the body.")


@contextlib.asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise HttpError(408, f"The body took longer than {seconds:g} seconds: send it faster.") from error
