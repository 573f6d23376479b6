"""An event loop in a thread of its own, so that requests can be given up at any moment."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any, Final, final

from robustassay.errors import Interrupted
from robustassay.interrupt import stop_requested

POLL_S: Final = 0.1
"""Seconds between two looks for a stop request."""

CLOSE_S: Final = 0.5
"""Seconds that cancelled work may take to end; then it is left alone."""


@final
class LoopThread:
    """Runs coroutines; starts with the first one. It is not the caller's loop, which a notebook may be using."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for a coroutine; cancel it at the first Ctrl-C or SIGTERM."""
        _check_stop()
        ended = threading.Event()

        async def until_ended() -> None:
            try:
                await work()
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(until_ended(), self._started())
        try:
            while not wait([future], timeout=POLL_S).done:
                _check_stop()
        except BaseException:
            future.cancel()
            ended.wait(CLOSE_S)
            raise
        future.result()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a last coroutine and end the thread; a thread that hangs is left behind."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return

        async def finish() -> None:
            try:
                await last()
            finally:
                loop.stop()

        asyncio.run_coroutine_threadsafe(finish(), loop)
        if thread is not threading.current_thread():
            thread.join(CLOSE_S)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), daemon=True, name="assay-service")
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _check_stop() -> None:
    if stop_requested():
        raise Interrupted(
            "Stopped while a service was asked: finished samples are saved and answers are cached; run the same "
            "command again to resume."
        )
