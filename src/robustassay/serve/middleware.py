"""Middleware around the application: metrics of every request, and a direct path for image files."""

import time
from typing import Final, final

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from robustassay.serve.handlers import Handlers

CLASSIFY_PATH: Final = "/classify"

CLIENT_LEFT: Final = 499
"""The status in the metrics of requests whose client left before the answer."""


@final
class MetricsMiddleware:
    """Counts and times every request, and sends image files directly to their handler.

    FastAPI's routing takes a third of the time of such a request, and attacks send thousands of them. The route stays
    registered, for /openapi.json.
    """

    def __init__(self, app: ASGIApp, handlers: Handlers) -> None:
        self._app, self._handlers = app, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and record its status and duration."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), CLIENT_LEFT

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        is_file = scope["path"] == CLASSIFY_PATH and scope["method"] == "POST"
        try:
            if is_file:
                response = await self._handlers.classify(Request(scope, receive))
                await response(scope, receive, send_and_record)
            else:
                await self._app(scope, receive, send_and_record)
        except Exception:
            status = 500
            raise
        finally:
            route = CLASSIFY_PATH if is_file else getattr(scope.get("route"), "path", "none")
            self._handlers.counts.count(route, status, time.perf_counter() - started)
