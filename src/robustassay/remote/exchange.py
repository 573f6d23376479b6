"""One request and its response: at most so many seconds, at most so many bytes, no redirect, no cookie."""

import asyncio
import importlib.util
import logging
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Any, Final, final

from robustassay.errors import BadRequest
from robustassay.remote.adapter import Limits
from robustassay.remote.credentials import Credentials
from robustassay.remote.redaction import Redactor
from robustassay.remote.response_body import ACCEPTED, read_body
from robustassay.remote.response_formats import MalformedResponse

SENDING: Final = ("send_request_headers.started", "send_connection_init.started")
"""Events of httpcore after which a request may have reached somebody."""

LOGGERS: Final = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy", "httpcore2.socks")
"""Loggers that write addresses or headers of responses."""


@final
@dataclass(frozen=True)
class Reply:
    """What came back: a status with a body, or a problem; and whether the request left this machine."""

    sent: bool
    status: int | None = None
    body: bytes = b""
    retry_after: float | None = None
    problem: str | None = None


@final
class Exchange:
    """Sends requests to one address."""

    def __init__(self, credentials: Credentials, limits: Limits) -> None:
        if importlib.util.find_spec("httpx2") is None:
            raise BadRequest("Asking a service needs httpx2: install it with pip install 'robustassay[http]'.")
        import httpx2

        self._limits = limits
        try:
            self._url = httpx2.URL(credentials.url)
        except (httpx2.InvalidURL, ValueError):
            raise BadRequest(
                "The address of the service is not valid with its environment variables: correct them."
            ) from None
        self.http = httpx2.AsyncClient(
            headers={"Accept-Encoding": ACCEPTED, **credentials.headers},
            timeout=None,
            follow_redirects=False,
            cookies=_NoCookies(),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=limits.concurrency),
        )
        self._log_filter = _RedactLog(credentials.redactor)
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._log_filter)

    async def send(self, request: dict[str, Any]) -> Reply:
        """Send once and read the whole response."""
        import httpx2

        sent = False

        async def trace(event: str, info: dict[str, Any]) -> None:
            nonlocal sent
            sent = sent or event.endswith(SENDING)

        status, retry_after = None, None
        try:
            async with (
                asyncio.timeout(self._limits.timeout_s),
                self.http.stream("POST", self._url, extensions={"trace": trace}, **request) as response,
            ):
                sent, status = True, response.status_code
                retry_after = _seconds(response.headers.get("retry-after"))
                body = await read_body(response, self._limits.max_response_bytes)
                return Reply(sent, status, body, retry_after)
        except TimeoutError:
            problem = f"no complete answer within {self._limits.timeout_s:g} s"
        except MalformedResponse as error:
            problem = str(error)
        except (httpx2.HTTPError, httpx2.StreamError, OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        return Reply(sent, status, b"", retry_after, problem)

    def release_logs(self) -> None:
        """Leave the loggers as they were."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self._log_filter)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()


@final
class _NoCookies(CookieJar):
    """Neither keeps nor reads a cookie: a service could fill the memory and every request with them."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Do nothing."""


@final
class _RedactLog(logging.Filter):
    """Removes secrets from the records of httpx."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redactor.text(record.getMessage()), ()
        return True


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:
        return None  # a date: the backoff is used instead
