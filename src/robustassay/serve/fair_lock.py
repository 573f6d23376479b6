"""A lock that clients get in turn."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import final


@final
class FairLock:
    """A lock whose next holder is of another client than the last one, if another client waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._taken = False

    @contextlib.asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Hold the lock for the length of the block."""
        if self._taken:
            await self._wait(client)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on(client)

    async def _wait(self, client: str) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # the lock came together with the cancellation
                self._pass_on(client)
            raise

    def _pass_on(self, last: str) -> None:
        if last in self._waiting:
            self._waiting[last] = self._waiting.pop(last)  # now behind all other clients
        while self._waiting:
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            following = queue.popleft()
            if queue:
                self._waiting[client] = queue
            if not following.done():
                following.set_result(None)
                return
        self._taken = False
