"""Guards each connection: a deadline while it waits for its client, and limits of headers and pipelined requests."""

import asyncio
from typing import Any, Final, final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from robustassay.serve.clients import client_of
from robustassay.serve.connections import ConnectionTable
from robustassay.serve.limits import Limits

STATE: Final = "connection"
"""The name under which requests find their connection in the state of the application."""

MAX_HEADER_BYTES: Final = 64 << 10
MAX_PIPELINED: Final = 16
KEEP_ALIVE_SECONDS: Final = 5
"""How long a connection may be silent between two requests."""

_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


@final
class GuardedProtocol(asyncio.Protocol):
    """Passes the bytes of one connection to uvicorn's protocol, and closes the connection at its deadline.

    The middleware says when a request begins, is being worked on, and is answered. So the guard needs to know nothing
    about how uvicorn parses HTTP.
    """

    def __init__(self, table: ConnectionTable, limits: Limits, app_state: dict[str, Any], **arguments: Any) -> None:
        self._table, self._limits = table, limits
        self._inner: Any = AutoHTTPProtocol(app_state={**app_state, STATE: self}, **arguments)  # type: ignore[call-arg]
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._header_bytes = 0
        self._reads_body = False
        self.client = ""
        self.waiting_since: float | None = None
        self.lost = False

    # ---------------------------------------------------------------- called by the middleware

    def begin_request(self) -> None:
        """The header is complete; the body has a deadline of its own."""
        self._task, self._reads_body = asyncio.current_task(), True
        self._set_deadline(None)

    def begin_work(self) -> None:
        """The body is complete: the client waits for the service, and further bytes are the next header."""
        self._reads_body, self._header_bytes = False, 0
        self.waiting_since = None

    def begin_response(self) -> None:
        """The client must read the response."""
        self._set_deadline(self._limits.response_seconds)

    def end_request(self) -> None:
        """The response is written; the next header may come."""
        self._task, self._reads_body, self._header_bytes = None, False, 0
        self._set_deadline(KEEP_ALIVE_SECONDS + self._limits.header_seconds)

    # ---------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection, or answer that the service is busy."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client = client_of(peer[0] if peer else None)
        self._inner.connection_made(transport)
        self._set_deadline(self._limits.header_seconds)
        if not self._table.admit(self):
            self._transport.write(_REFUSAL)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, unless the header is too long or too many requests are pipelined."""
        if self._transport.is_closing():
            return
        if not self._reads_body:
            if self._header_bytes > MAX_HEADER_BYTES:
                self.abort()
                return
            self._header_bytes += len(data)
        self._inner.data_received(data)
        pipeline: Any = getattr(self._inner, "pipeline", ())  # of httptools; h11 stops reading by itself
        if len(pipeline) > MAX_PIPELINED:
            pipeline.clear()
            self.abort()

    def eof_received(self) -> None:
        """Pass on that the client sends no more."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client reads slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client has read."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and cancel its request: nobody waits for the answer."""
        self.lost = True
        self._table.remove(self)
        self._set_deadline(None)
        self._inner.connection_lost(exc)
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Close the connection at once, without writing what the client did not read."""
        self._transport.abort()

    def _set_deadline(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self.waiting_since = loop.time()
        self._timer = None if seconds is None else loop.call_later(seconds, self.abort)
