"""Graceful interrupts: Ctrl-C and SIGTERM let the waves in flight finish; the second one stops at once.

Code that waits for somebody else, such as a service, asks `stop_requested` and gives up at the first one.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from robustassay.errors import Interrupted


class StopRequest:
    """Whether the user has asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the first request; raise at the second."""
        if self.asked:
            raise Interrupted("Stopped at once; finished shards are safe, and the same command resumes the rest.")
        self.asked = True


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
