"""Tells each connection what its request waits for, and reads what is left of a body before the answer."""

import asyncio
from typing import Any, Final, final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from robustassay.serve.bodies import SMALL_BODY
from robustassay.serve.fair_lock import FairLock
from robustassay.serve.guarded_protocol import STATE, GuardedProtocol
from robustassay.serve.limits import Limits

MAX_DISCARDED: Final = 16 << 20
"""Bytes of a refused body that are read, so that its sender sees the answer; after more the connection is closed."""

DISCARDED_PER_SECOND: Final = 4 << 20
"""Bytes of large refused bodies that are read per second, of all clients together; it takes time from others."""


@final
class ConnectionMiddleware:
    """Follows each request on its connection; the request of a client that leaves ends without a word."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._discarding = FairLock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        connection = scope.get("state", {}).get(STATE) if scope["type"] == "http" else None
        if connection is None:
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(connection, self._limits, self._discarding, receive, send)
        connection.begin_request()
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:
            if not connection.lost:
                raise


@final
class _Exchange:
    """One request and its response."""

    def __init__(
        self, connection: GuardedProtocol, limits: Limits, discarding: FairLock, receive: Receive, send: Send
    ) -> None:
        self._connection, self._limits, self._discarding = connection, limits, discarding
        self._receive, self._send = receive, send
        self._has_body = False

    async def receive(self) -> Message:
        message = await self._receive()
        if not self._has_body and not message.get("more_body", False):
            self._has_body = True
            self._connection.begin_work()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self._has_body and not await self._discard_body():
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            self._connection.begin_response()
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._connection.end_request()

    async def _discard_body(self) -> bool:
        """Read the rest of the body; False if it is too long or too slow."""
        discarded = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while not self._has_body and discarded <= MAX_DISCARDED:
                    message: Any = await self.receive()
                    discarded += len(message.get("body", b""))
                    if discarded > SMALL_BODY:
                        async with self._discarding.turn(self._connection.client):
                            await asyncio.sleep(len(message.get("body", b"")) / DISCARDED_PER_SECOND)
        except TimeoutError:
            return False
        return self._has_body
