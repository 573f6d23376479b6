"""Batches concurrent requests into one forward pass, in turn between clients."""

import asyncio
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final, final

import torch
from torch import Tensor

from robustassay.serve.http_error import HttpError
from robustassay.target import TargetModel

MAX_QUEUED: Final = 8192
"""Images that may wait; with more, the service answers 503 instead of using more memory."""

MAX_QUEUED_PER_CLIENT: Final = MAX_QUEUED // 4

SMALL: Final = 8
"""Requests up to this many images do not wait for larger ones of the same client."""

SHARED_PASS_SECONDS: Final = 0.01
"""How long a pass may take while several queues are in use, but at least `SMALL` images."""

IN_USE_SECONDS: Final = 1.0
"""For how long after its last request a queue counts as in use."""

QueueName = tuple[str, bool]
"""A client, and whether the requests are small."""


@final
class _Waiting:
    """A request of which some images are not answered yet."""

    def __init__(self, images: Tensor, client: str) -> None:
        self.images, self.client, self.taken = images, client, 0
        self.logits: list[Tensor] = []
        self.answer: asyncio.Future[Tensor] = asyncio.get_running_loop().create_future()

    @property
    def left(self) -> int:
        return len(self.images) - self.taken

    def take(self, count: int) -> Tensor:
        rows = self.images[self.taken : self.taken + count]
        self.taken += count
        return rows

    def add(self, logits: Tensor) -> None:
        self.logits.append(logits)
        if not self.left and not self.answer.done():  # the client may have disconnected
            self.answer.set_result(torch.cat(self.logits))

    def fail(self, error: HttpError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@final
class Batcher:
    """Collects the requests that arrive during a forward pass into the next batch; an idle service adds no delay.

    Each client has two queues, for small and for large requests. A pass takes one image of each queue in turn. While
    several queues are in use, passes are short, so that a small request waits for little else. Logits of an image do
    not depend on the other images of its batch: `TargetModel` pads every pass to whole lanes.
    """

    def __init__(self, model: TargetModel, max_batch: int) -> None:
        self._model, self._max_batch = model, max_batch
        self._queues: dict[QueueName, deque[_Waiting]] = {}
        self._last_used: dict[QueueName, float] = {}
        self._image_seconds = 0.0
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forward")
        self.queued = 0
        self._queued_of: Counter[str] = Counter()
        self.images = 0
        self.passes = 0

    async def logits(self, images: Tensor, client: str = "") -> Tensor:
        """Return the logits of the images of one request."""
        total, own = (waiting + len(images) for waiting in (self.queued, self._queued_of[client]))
        if len(images) > 1 and (total > MAX_QUEUED or own > MAX_QUEUED_PER_CLIENT):  # connections bound single images
            raise HttpError(503, "The service is busy: try again in a second.", retry_after=1)
        waiting, name = _Waiting(images, client), (client, len(images) <= SMALL)
        self._count_queued(client, len(images))
        self._queues.setdefault(name, deque()).append(waiting)
        self._last_used[name] = time.monotonic()
        self._arrived.set()
        return await waiting.answer

    def _count_queued(self, client: str, more: int) -> None:
        self.queued += more
        self._queued_of[client] += more
        if not self._queued_of[client]:
            del self._queued_of[client]

    async def run(self) -> None:
        """Process batches until cancelled."""
        try:
            while True:
                await self._arrived.wait()
                batch = self._collect(self._pass_size())
                if batch:
                    await self._answer(batch)
                else:
                    self._arrived.clear()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _pass_size(self) -> int:
        """Return how many images the next pass may hold."""
        now = time.monotonic()
        self._last_used = {name: at for name, at in self._last_used.items() if now - at < IN_USE_SECONDS}
        if len(self._last_used.keys() | self._queues.keys()) < 2 or not self._image_seconds:
            return self._max_batch
        in_time = int(SHARED_PASS_SECONDS / self._image_seconds)
        return min(self._max_batch, max(SMALL, in_time - in_time % SMALL))

    def _collect(self, size: int) -> dict[_Waiting, int]:
        """Return how many images of which requests the next pass takes."""
        counts: dict[_Waiting, int] = {}
        while self._queues and size:
            name = next(iter(self._queues))
            queue = self._queues.pop(name)
            first = queue[0]
            if first.answer.done():  # the client has disconnected
                self._count_queued(first.client, -first.left)
                queue.popleft()
            else:
                size -= 1
                counts[first] = counts.get(first, 0) + 1
                if counts[first] == first.left:
                    queue.popleft()
            if queue:
                self._queues[name] = queue  # last of all queues
        return counts

    async def _answer(self, counts: dict[_Waiting, int]) -> None:
        images = torch.cat([waiting.take(count) for waiting, count in counts.items()])
        for waiting, count in counts.items():
            self._count_queued(waiting.client, -count)
        started = time.monotonic()
        try:
            logits = await asyncio.get_running_loop().run_in_executor(self._thread, self._model.logits, images)
        except Exception as error:  # the clients get the error; the service goes on
            for waiting in counts:
                waiting.fail(HttpError(500, f"The model failed: {error}"))
            return
        seconds = (time.monotonic() - started) / max(SMALL, len(images))
        self._image_seconds = (self._image_seconds + seconds) / 2 if self._image_seconds else seconds
        self.images += len(images)
        self.passes += 1
        for waiting, rows in zip(counts, torch.split(logits, list(counts.values())), strict=True):
            waiting.add(rows)
