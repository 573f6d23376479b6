"""Sends images to a service: throttled, retried, counted and logged."""

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
from robustassay.remote.budget import QueryBudget
from robustassay.remote.encoding import SentImage, encode_request
from robustassay.remote.response_formats import Answer, MalformedResponse, read_answers
from robustassay.remote.transcript import Transcript

RETRIED: Final = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which a request is sent again."""

NOT_CHARGED: Final = (401, 403, 404, 413, 415, 429)
"""Statuses of a service that did no work and charges nothing."""

FIRST_BACKOFF_S: Final = 0.1

OnAnswer = Callable[[SentImage, Answer], None]


def expand(text: str) -> tuple[str, list[str]]:
    """Replace each `$NAME` by its environment variable; return the text and the secrets in it."""
    secrets = []

    def look_up(match: "re.Match[str]") -> str:
        value = os.environ.get(match[1])
        if not value:
            raise BadRequest(f"The adapter reads ${match[1]} from the environment, where it is not set.")
        secrets.append(value)
        return value

    return re.sub(r"\$([A-Za-z_][A-Za-z0-9_]*)", look_up, text), secrets


@final
class Client:
    """Asks a service about images. Every image gets an answer, or an error is raised: no failure becomes a label."""

    def __init__(
        self, adapter: Adapter, budget: QueryBudget, open_transcript: Callable[[list[str]], Transcript]
    ) -> None:
        if importlib.util.find_spec("httpx2") is None:
            raise BadRequest("Asking a service needs httpx2: install it with pip install 'robustassay[http]'.")
        import httpx2

        self._adapter, self._limits, self._budget = adapter, adapter.limits, budget
        self._url, secrets = expand(adapter.url)
        headers = {}
        for name, value in adapter.headers.items():
            headers[name], found = expand(value)
            secrets += [*found, headers[name]]
        self._transcript = open_transcript(secrets)
        self._random, self._throttle = random.Random(), Throttle(adapter.limits.per_second)
        self._http = httpx2.Client(
            headers=headers,
            timeout=adapter.limits.timeout_s,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=adapter.limits.concurrency),
        )

    def ask(self, images: Sequence[SentImage], purpose: str, on_answer: OnAnswer) -> None:
        """Send all images, several at once, and pass on each answer as it arrives."""
        size = self._limits.batch
        groups = [list(images[start : start + size]) for start in range(0, len(images), size)]
        stop = threading.Event()
        pool = ThreadPoolExecutor(min(self._limits.concurrency, max(1, len(groups))))
        try:
            work = [pool.submit(self._ask_until_answered, group, purpose, on_answer, stop) for group in groups]
            wait(work, return_when=FIRST_EXCEPTION)
            for done in work:
                if done.done():
                    done.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Close the connections and the transcript."""
        self._http.close()
        self._transcript.close()

    def _ask_until_answered(
        self, images: list[SentImage], purpose: str, on_answer: OnAnswer, stop: threading.Event
    ) -> None:
        request = encode_request(images, self._adapter)
        for attempt in range(1, self._limits.tries + 1):
            if stop.is_set():
                return
            self._throttle.wait(stop)
            self._budget.reserve(len(images))
            outcome, answers, pause = self._try(request, images, purpose, attempt)
            if answers is not None:
                self._budget.count_answers(purpose, len(images))
                for image, answer in zip(images, answers, strict=True):
                    on_answer(image, answer)
                return
            if attempt < self._limits.tries:
                self._budget.count_retry()
                stop.wait(self._backoff(attempt) if pause is None else min(pause, self._limits.max_backoff_s))
        raise ModelFailed(
            f"The service failed {self._limits.tries} times in a row ({outcome}): "
            "no result of this request was counted; run the same command again to resume."
        )

    def _try(
        self, request: dict[str, Any], images: list[SentImage], purpose: str, attempt: int
    ) -> tuple[str, list[Answer] | None, float | None]:
        """Send once. Return the outcome, the answers if any, and the pause that the service asks for."""
        import httpx2

        started, answers, pause, said = time.perf_counter(), None, None, None
        outcome: int | str
        try:
            response = self._http.post(self._url, **request)
            outcome = response.status_code
            if outcome in NOT_CHARGED:
                self._budget.refund(len(images))
            if response.is_success:
                answers = read_answers(response.content, len(images), self._adapter)
            else:
                said, pause = response.text[:200], _retry_after(response.headers.get("retry-after"))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._budget.refund(len(images))
            outcome = f"{type(error).__name__}: {error}"
        except httpx2.TransportError as error:
            outcome = f"{type(error).__name__}: {error}"
        except MalformedResponse as error:
            outcome = f"unreadable: {error}"
        recorded = None if answers is None else [{"labels": one.labels, "scores": one.scores} for one in answers]
        self._transcript.write(
            {
                "url": self._adapter.url,
                "purpose": purpose,
                "images": [image.sha256 for image in images],
                "try": attempt,
                "outcome": outcome,
                "seconds": round(time.perf_counter() - started, 4),
                **({"said": said} if said else {}),
                **({"answers": recorded} if recorded else {}),
            }
        )
        if isinstance(outcome, int) and answers is None and outcome not in RETRIED:
            raise ModelFailed(
                f"The service refuses the request with status {outcome} ({self._transcript.redact(said or '')}): "
                "check address, key and adapter; no result of this request was counted."
            )
        return self._transcript.redact(str(outcome)), answers, pause

    def _backoff(self, attempt: int) -> float:
        """Return a random pause that doubles with each try, so that many clients do not return together."""
        most = min(self._limits.max_backoff_s, FIRST_BACKOFF_S * 2.0 ** (attempt - 1))
        return most * self._random.uniform(0.5, 1.0)


@final
class Throttle:
    """Starts at most this many requests per second, evenly spaced."""

    def __init__(self, per_second: float | None) -> None:
        self._gap = 0.0 if per_second is None else 1 / per_second
        self._lock, self._free_at = threading.Lock(), 0.0

    def wait(self, stop: threading.Event) -> None:
        """Wait until this request may start, or until `stop` is set."""
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
        return None  # a date: the backoff is used instead
