"""The line to a service: paced, tried again, counted and written down."""

import importlib.util
import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Final, final

from robustassay.errors import BadRequest, ModelFailed
from robustassay.remote.adapter import Adapter
from robustassay.remote.answers import Answer, Unreadable, read_answers
from robustassay.remote.budget import Purse
from robustassay.remote.encoding import Picture, request_of
from robustassay.remote.transcript import Transcript

PASSING: Final = (408, 425, 429, 500, 502, 503, 504)
"""Statuses that another try may change."""

UNWORKED: Final = (401, 403, 404, 413, 415, 429)
"""Statuses of a service that has done no work, and charges none."""

FIRST_BACKOFF_S: Final = 0.1

Arrived = Callable[[Picture, Answer], None]


def expand(text: str) -> tuple[str, list[str]]:
    """Put environment variables in place of `$NAME`; return the text and what must be kept secret."""
    secrets = []

    def look_up(match: "re.Match[str]") -> str:
        value = os.environ.get(match[1])
        if not value:
            raise BadRequest(f"The adapter reads ${match[1]} from the environment, where it is not set.")
        secrets.append(value)
        return value

    return re.sub(r"\$([A-Za-z_][A-Za-z0-9_]*)", look_up, text), secrets


@final
class Line:
    """Asks a service about images; what it returns is an answer for each, or it raises, so no failure is a label."""

    def __init__(self, adapter: Adapter, purse: Purse, open_transcript: Callable[[list[str]], Transcript]) -> None:
        if importlib.util.find_spec("httpx2") is None:
            raise BadRequest("Asking a service needs httpx2: install it with pip install 'robustassay[http]'.")
        import httpx2

        self._adapter, self._limits, self._purse = adapter, adapter.limits, purse
        self._url, secrets = expand(adapter.url)
        headers = {}
        for name, value in adapter.headers.items():
            headers[name], found = expand(value)
            secrets += [*found, headers[name]]
        self._transcript = open_transcript(secrets)
        self._random, self._pace = random.Random(), Pace(adapter.limits.per_second)
        self._client = httpx2.Client(
            headers=headers,
            timeout=adapter.limits.timeout_s,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=adapter.limits.concurrency),
        )

    def ask(self, pictures: Sequence[Picture], purpose: str, arrived: Arrived) -> None:
        """Send all pictures, several at once, and hand over each answer as it comes."""
        size = self._limits.batch
        groups = [list(pictures[start : start + size]) for start in range(0, len(pictures), size)]
        stop = threading.Event()
        pool = ThreadPoolExecutor(min(self._limits.concurrency, max(1, len(groups))))
        try:
            work = [pool.submit(self._ask_until_answered, group, purpose, arrived, stop) for group in groups]
            wait(work, return_when=FIRST_EXCEPTION)
            for done in work:
                if done.done():
                    done.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Hang up."""
        self._client.close()
        self._transcript.close()

    def _ask_until_answered(
        self, pictures: list[Picture], purpose: str, arrived: Arrived, stop: threading.Event
    ) -> None:
        request = request_of(pictures, self._adapter)
        for attempt in range(1, self._limits.tries + 1):
            if stop.is_set():
                return
            self._pace.wait(stop)
            self._purse.reserve(len(pictures))
            outcome, answers, pause = self._try(request, pictures, purpose, attempt)
            if answers is not None:
                self._purse.book(purpose, len(pictures))
                for picture, answer in zip(pictures, answers, strict=True):
                    arrived(picture, answer)
                return
            if attempt < self._limits.tries:
                self._purse.note_retry()
                stop.wait(self._backoff(attempt) if pause is None else min(pause, self._limits.max_backoff_s))
        raise ModelFailed(
            f"The service failed {self._limits.tries} times in a row ({outcome}): no sample was judged by it; "
            "run the same command again to resume."
        )

    def _try(
        self, request: dict[str, Any], pictures: list[Picture], purpose: str, attempt: int
    ) -> tuple[str, list[Answer] | None, float | None]:
        """Send once. Return how it ended, the answers if any came, and how long the service asks to be left alone."""
        import httpx2

        started, answers, pause, said = time.perf_counter(), None, None, None
        outcome: int | str
        try:
            response = self._client.post(self._url, **request)
            outcome = response.status_code
            if outcome in UNWORKED:
                self._purse.refund(len(pictures))
            if response.is_success:
                answers = read_answers(response.content, len(pictures), self._adapter)
            else:
                said, pause = response.text[:200], _retry_after(response.headers.get("retry-after"))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._purse.refund(len(pictures))
            outcome = f"{type(error).__name__}: {error}"
        except httpx2.TransportError as error:
            outcome = f"{type(error).__name__}: {error}"
        except Unreadable as error:
            outcome = f"unreadable: {error}"
        told = None if answers is None else [{"labels": one.labels, "scores": one.scores} for one in answers]
        self._transcript.write(
            {
                "url": self._adapter.url,
                "purpose": purpose,
                "images": [picture.sha256 for picture in pictures],
                "try": attempt,
                "outcome": outcome,
                "seconds": round(time.perf_counter() - started, 4),
                **({"said": said} if said else {}),
                **({"answers": told} if told else {}),
            }
        )
        if isinstance(outcome, int) and answers is None and outcome not in PASSING:
            raise ModelFailed(
                f"The service refuses the request with status {outcome} ({self._transcript.redact(said or '')}): "
                "check address, key and adapter; no sample was judged by it."
            )
        return self._transcript.redact(str(outcome)), answers, pause

    def _backoff(self, attempt: int) -> float:
        """Wait longer each time, by chance, so that many clients do not come back together."""
        most = min(self._limits.max_backoff_s, FIRST_BACKOFF_S * 2.0 ** (attempt - 1))
        return most * self._random.uniform(0.5, 1.0)


@final
class Pace:
    """Lets so many requests start a second, evenly."""

    def __init__(self, per_second: float | None) -> None:
        self._gap = 0.0 if per_second is None else 1 / per_second
        self._lock, self._free_at = threading.Lock(), 0.0

    def wait(self, stop: threading.Event) -> None:
        """Wait for this request's turn, or for the end."""
        if not self._gap:
            return
        with self._lock:
            start = max(time.monotonic(), self._free_at)
            self._free_at = start + self._gap
        stop.wait(start - time.monotonic())


def _retry_after(header: str | None) -> float | None:
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:
        return None  # a date, which says less than a backoff knows
