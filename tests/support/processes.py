"""Processes that a test has started."""

import time
from collections.abc import Iterable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def alive_after(seconds: float, pids: Iterable[int]) -> list[int]:
    """Wait until all of these processes have ended; return those that still run after so many seconds."""
    end, left = time.monotonic() + seconds, list(pids)
    while time.monotonic() < end and (left := [pid for pid in left if is_alive(pid)]):
        time.sleep(0.02)
    return left
