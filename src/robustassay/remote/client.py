"""Sends images to a service: throttled, retried, counted and logged."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

from robustassay.errors import ModelFailed
from robustassay.printable import escape, shorten
from robustassay.remote.adapter import Adapter
from robustassay.remote.budget import QueryBudget
from robustassay.remote.credentials import Credentials
from robustassay.remote.encoding import SentImage, encode_request
from robustassay.remote.exchange import Exchange, Reply
from robustassay.remote.loop_thread import LoopThread
from robustassay.remote.response_formats import Answer, MalformedResponse, read_answers
from robustassay.remote.throttle import Throttle
from robustassay.remote.transcript import Transcript

RETRIED: Final = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which a request is sent again."""

NOT_CHARGED: Final = (401, 403, 404, 413, 415, 429)
"""Statuses of a service that did no work and charges nothing."""

FIRST_BACKOFF_S: Final = 0.1

OnAnswer = Callable[[SentImage, Answer], None]


@final
class Client:
    """Asks a service about images. Every image gets an answer, or an error is raised: no failure becomes a label."""

    def __init__(self, adapter: Adapter, budget: QueryBudget, transcript: Path) -> None:
        self._adapter, self._limits, self._budget = adapter, adapter.limits, budget
        credentials = Credentials.of(adapter)
        self._redactor = credentials.redactor
        self._exchange = Exchange(credentials, adapter.limits)
        self._transcript = Transcript(transcript)
        self._random, self._throttle = random.Random(), Throttle(adapter.limits.per_second)
        self._thread = LoopThread()

    def ask(self, images: Sequence[SentImage], purpose: str, on_answer: OnAnswer) -> None:
        """Send all images, several at once, and pass on each answer as it arrives."""
        size = self._limits.batch
        groups = [list(images[start : start + size]) for start in range(0, len(images), size)]
        self._thread.run(lambda: self._ask_all(groups, purpose, on_answer))

    def close(self) -> None:
        """Close the connections and the transcript."""
        self._exchange.release_logs()
        self._thread.close(self._exchange.close)
        self._transcript.close()

    async def _ask_all(self, groups: list[list[SentImage]], purpose: str, on_answer: OnAnswer) -> None:
        """Ask about all groups; after an error, the requests in flight end, because their answers are paid for."""
        waiting, stop = iter(groups), asyncio.Event()

        async def work() -> None:
            for group in waiting:
                if not stop.is_set():
                    await self._ask_until_answered(group, purpose, on_answer, stop)

        tasks = [asyncio.create_task(work()) for _ in range(min(self._limits.concurrency, len(groups)))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            stop.set()
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        for error in [error for task in tasks if (error := task.exception()) is not None]:
            raise error

    async def _ask_until_answered(
        self, images: list[SentImage], purpose: str, on_answer: OnAnswer, stop: asyncio.Event
    ) -> None:
        request = encode_request(images, self._adapter)
        for attempt in range(1, self._limits.tries + 1):
            await _pause(self._throttle.reserve(), stop)
            if stop.is_set():
                return
            self._budget.reserve(len(images))
            with self._logged(images, purpose, attempt) as line:
                outcome, answers, pause = await self._try(request, images, line)
            if answers is not None:
                self._budget.count_answers(purpose, len(images))
                for image, answer in zip(images, answers, strict=True):
                    on_answer(image, answer)
                return
            if attempt < self._limits.tries:
                self._budget.count_retry()
                await _pause(self._backoff(attempt) if pause is None else min(pause, self._limits.max_backoff_s), stop)
        raise ModelFailed(
            f"The service failed {self._limits.tries} times in a row ({outcome}): "
            "no result of this request was counted; run the same command again to resume."
        )

    async def _try(
        self, request: dict[str, Any], images: list[SentImage], line: dict[str, Any]
    ) -> tuple[int | str, list[Answer] | None, float | None]:
        """Send once. Return the outcome, the answers if any, and the pause that the service asks for."""
        reply = await self._exchange.send(request)
        if not reply.sent:
            self._budget.take_back(len(images))
        elif reply.status in NOT_CHARGED:
            self._budget.refund(len(images))
        if reply.status is not None and not 200 <= reply.status < 300:
            line["outcome"], line["said"] = reply.status, self._said(reply)
            if reply.status not in RETRIED:
                raise ModelFailed(
                    f"The service refuses the request with status {reply.status} ({line['said']}): "
                    "check address, key and adapter; no result of this request was counted."
                )
            return reply.status, None, reply.retry_after
        answers, problem = self._read(reply, len(images))
        if answers is None:
            line["outcome"] = problem
            return problem, None, None
        line["outcome"] = reply.status
        line["answers"] = [{"labels": one.labels, "scores": one.scores} for one in answers]
        return "answered", answers, None

    def _read(self, reply: Reply, count: int) -> tuple[list[Answer] | None, str]:
        """Return the answers without secrets, or what is wrong."""
        if reply.problem is not None:
            return None, self._shown(reply.problem)
        try:
            answers = read_answers(reply.body, count, self._adapter)
        except MalformedResponse as error:
            return None, self._shown(f"unreadable: {error}")
        return [replace(one, labels=tuple(map(escape, self._redactor.texts(one.labels)))) for one in answers], ""

    def _said(self, reply: Reply) -> str:
        """Return the start of an error's text; the charset that it names may not exist, so it is read as UTF-8."""
        return self._shown(reply.problem or reply.body.decode("utf-8", "replace"))

    def _shown(self, text: str) -> str:
        """Remove secrets, then cut: half a secret would not be recognised."""
        return shorten(self._redactor.text(text))

    @contextlib.contextmanager
    def _logged(self, images: list[SentImage], purpose: str, attempt: int) -> Iterator[dict[str, Any]]:
        """Write one line about a try, also where it is given up."""
        started = time.perf_counter()
        result: dict[str, Any] = {"outcome": "interrupted"}
        try:
            yield result
        finally:
            self._transcript.write(
                {
                    "url": self._adapter.public_url,
                    "purpose": purpose,
                    "images": [image.sha256 for image in images],
                    "try": attempt,
                    "outcome": result.pop("outcome"),
                    "seconds": round(time.perf_counter() - started, 4),
                    **{name: value for name, value in result.items() if value},
                }
            )

    def _backoff(self, attempt: int) -> float:
        """Return a random pause that doubles with each try, so that many clients do not return together."""
        most = min(self._limits.max_backoff_s, FIRST_BACKOFF_S * 2.0 ** (attempt - 1))
        return most * self._random.uniform(0.5, 1.0)


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait, at most until `stop` is set."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()
