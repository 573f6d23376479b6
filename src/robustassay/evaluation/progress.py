"""One progress protocol for everything that takes long."""

import math
import time
from collections.abc import Callable, Sized
from typing import Any, Final, Protocol

from robustassay.analysis.rates import Rate
from robustassay.attacks.attack import Attack
from robustassay.interrupt import set_estimate
from robustassay.target import Ledger

MIN_SECONDS: Final = 0.1
"""Seconds between two updates inside a wave: on a GPU, each update waits for all work in flight."""


class Progress(Protocol):
    """Receives the progress of a task: one start, many updates, one finish. A task may be a run, a study or a map."""

    def start(self, title: str, samples: int, finished: int) -> None:
        """A task begins; `finished` of its samples were done earlier."""

    def update(self, finished: float, robust: Rate) -> None:
        """`finished` samples are done, where those in flight count in part; `robust` is the robust accuracy so far."""

    def finish(self) -> None:
        """The task has ended, with or without success."""


class NoProgress:
    """Ignores all progress."""

    def start(self, title: str, samples: int, finished: int) -> None:
        """Do nothing."""

    def update(self, finished: float, robust: Rate) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class ProgressMeter:
    """Turns finished waves and rows into updates of a Progress."""

    def __init__(self, progress: Progress, total: int, missing: Sized) -> None:
        self._progress = progress
        self._robust = Rate(0, 0)
        self.total = total
        self.finished = total - len(missing)

    def on_step(self, attack: Attack[Any], rows: int) -> Callable[[Ledger], None]:
        """Return a function for the steps of one wave: finished rows count in full, the others by the steps done."""
        length = attack.planned_steps or 1
        due, done, started = 0.0, 0.0, time.monotonic()

        def seconds_left() -> float:
            return (time.monotonic() - started) * (rows - done) / done if done else math.nan

        def on_step(ledger: Ledger) -> None:
            nonlocal due, done
            if time.monotonic() < due:
                return
            due = time.monotonic() + MIN_SECONDS
            unfinished = int((~ledger.done).sum())
            part = rows - unfinished + unfinished * min(1.0, int(ledger.iterations.max()) / length)
            done = part
            robust_so_far = Rate(self._robust.count + unfinished, self._robust.total + rows)
            self._progress.update(self.finished + part, robust_so_far)

        set_estimate(seconds_left)
        return on_step

    def wave_done(self, robust: Rate, failed: int = 0) -> None:
        """Count a finished wave, with the samples that the model failed on."""
        self.finished += robust.total + failed
        self._robust = Rate(self._robust.count + robust.count, self._robust.total + robust.total)
        self._progress.update(self.finished, self._robust)
