"""Batches concurrent requests into one forward pass."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, final

import torch
from torch import Tensor

from robustassay.serve.http_error import HttpError
from robustassay.target import TargetModel

MAX_QUEUED: Final = 8192
"""Images that may wait; with more, the service answers 503 instead of using more memory."""


@final
class Batcher:
    """Collects the requests that arrive during a forward pass into the next batch; an idle service adds no delay.

    Logits of an image do not depend on the other images of its batch: `TargetModel` pads every pass to whole lanes.
    """

    def __init__(self, model: TargetModel, max_batch: int) -> None:
        self._model, self._max_batch = model, max_batch
        self._waiting: asyncio.Queue[tuple[Tensor, asyncio.Future[Tensor]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forward")
        self._next_batch: tuple[Tensor, asyncio.Future[Tensor]] | None = None
        self.queued = 0
        self.images = 0
        self.passes = 0

    async def logits(self, images: Tensor) -> Tensor:
        """Return the logits of the images of one request."""
        if self.queued + len(images) > MAX_QUEUED:
            raise HttpError(503, "The service is busy: try again in a second.", retry_after=1)
        answer: asyncio.Future[Tensor] = asyncio.get_running_loop().create_future()
        self.queued += len(images)
        self._waiting.put_nowait((images, answer))
        return await answer

    async def run(self) -> None:
        """Process batches until cancelled."""
        try:
            while True:
                requests = await self._collect()
                await self._answer(requests)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _collect(self) -> list[tuple[Tensor, "asyncio.Future[Tensor]"]]:
        """Wait for a request and add the other waiting ones; a request that does not fit starts the next batch."""
        requests = [self._next_batch or await self._waiting.get()]
        self._next_batch = None
        size = len(requests[0][0])
        with suppress(asyncio.QueueEmpty):
            while size < self._max_batch:
                request = self._waiting.get_nowait()
                size += len(request[0])
                if size > self._max_batch:
                    self._next_batch = request
                else:
                    requests.append(request)
        return requests

    async def _answer(self, requests: list[tuple[Tensor, "asyncio.Future[Tensor]"]]) -> None:
        images = torch.cat([images for images, _ in requests])
        self.queued -= len(images)
        try:
            logits = await asyncio.get_running_loop().run_in_executor(self._thread, self._model.logits, images)
        except Exception as error:  # the clients get the error; the service goes on
            for _, answer in requests:
                if not answer.done():
                    answer.set_exception(HttpError(500, f"The model failed: {error}"))
            return
        self.images += len(images)
        self.passes += 1
        logits_per_request = torch.split(logits, [len(images) for images, _ in requests])
        for (_, answer), rows in zip(requests, logits_per_request, strict=True):
            if not answer.done():  # the client may have disconnected
                answer.set_result(rows)
