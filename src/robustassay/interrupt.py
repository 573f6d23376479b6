"""Graceful interrupts: Ctrl-C and SIGTERM let the waves in flight finish; the second one stops at once.

The first one is answered at once, with the time that the waves in flight take.

Code that waits for somebody else, such as a service, asks `stop_requested` and gives up at the first one.
"""

import contextlib
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from robustassay.errors import Interrupted


class StopRequest:
    """Whether the user has asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the first request and answer it; raise at the second."""
        if self.asked:
            raise Interrupted("Stopped at once; finished shards are safe, and the same command resumes the rest.")
        self.asked = True
        answer = f"\nassay: stopping after the samples in progress{_seconds_left()}; press Ctrl-C again to stop now.\n"
        # A print of the main thread may be under way, and its buffer cannot be entered twice.
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, answer.encode())


_estimate: Callable[[], float] | None = None
"""Returns the seconds until the work in progress is finished."""


def set_estimate(seconds_left: Callable[[], float] | None) -> None:
    """Name the function that says how long the work in progress takes."""
    global _estimate
    _estimate = seconds_left


def _seconds_left() -> str:
    seconds = _estimate() if _estimate is not None else math.nan
    return f", about {max(1, round(seconds))} s" if math.isfinite(seconds) else ""


_active: StopRequest | None = None
"""The request of the outermost block, which all inner blocks share."""


@contextlib.contextmanager
def graceful_interrupt() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a stop request while this block runs.

    Blocks nest: an evaluation inside a study shares the stop request of the study.
    """
    global _active
    if threading.current_thread() is not threading.main_thread():
        yield StopRequest()
        return
    if _active is not None:
        yield _active
        return
    _active = request = StopRequest()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, request.handle) for number in signals]
    try:
        yield request
    finally:
        _active = None
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def stop_requested() -> bool:
    """Say whether the user has asked the running evaluation or study to stop."""
    return _active is not None and _active.asked
