"""Requests that arrive together share a forward pass."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, final

import torch
from torch import Tensor

from robustassay.serve.refusal import Refusal
from robustassay.target import TargetModel

MOST_WAITING: Final = 8192
"""Images that may wait; beyond, a service says that it is busy instead of growing without end."""


@final
class Batcher:
    """Collects whatever waits while a pass runs into the next one, so load makes batches and idleness no delay.

    An image gets the same bits in whatever company: `TargetModel` pads every pass to whole lanes.
    """

    def __init__(self, network: TargetModel, most: int) -> None:
        self._network, self._most = network, most
        self._waiting: asyncio.Queue[tuple[Tensor, asyncio.Future[Tensor]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forward")
        self._held: tuple[Tensor, asyncio.Future[Tensor]] | None = None
        self.queued = 0
        self.images = 0
        self.passes = 0

    async def logits(self, images: Tensor) -> Tensor:
        """Return the logits of one request's images."""
        if self.queued + len(images) > MOST_WAITING:
            raise Refusal(503, "The service is busy: try again in a second.", retry_after=1)
        answer: asyncio.Future[Tensor] = asyncio.get_running_loop().create_future()
        self.queued += len(images)
        self._waiting.put_nowait((images, answer))
        return await answer

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                requests = await self._gather()
                await self._answer(requests)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _gather(self) -> list[tuple[Tensor, "asyncio.Future[Tensor]"]]:
        """Wait for one request and take the others that are there; one that does not fit opens the next batch."""
        requests = [self._held or await self._waiting.get()]
        self._held = None
        size = len(requests[0][0])
        with suppress(asyncio.QueueEmpty):
            while size < self._most:
                request = self._waiting.get_nowait()
                size += len(request[0])
                if size > self._most:
                    self._held = request
                else:
                    requests.append(request)
        return requests

    async def _answer(self, requests: list[tuple[Tensor, "asyncio.Future[Tensor]"]]) -> None:
        images = torch.cat([images for images, _ in requests])
        self.queued -= len(images)
        try:
            logits = await asyncio.get_running_loop().run_in_executor(self._thread, self._network.logits, images)
        except Exception as error:  # the model's fault, told to those who asked; the service lives on
            for _, answer in requests:
                if not answer.done():
                    answer.set_exception(Refusal(500, f"The model failed: {error}"))
            return
        self.images += len(images)
        self.passes += 1
        shares = torch.split(logits, [len(images) for images, _ in requests])
        for (_, answer), rows in zip(requests, shares, strict=True):
            if not answer.done():  # its client may have left
                answer.set_result(rows)
