"""One progress protocol for everything that takes long."""

import time
from collections.abc import Callable, Sized
from typing import Any, Final, Protocol

from robustassay.analysis.rates import Rate
from robustassay.attacks.attack import Attack
from robustassay.target import Ledger

PAUSE: Final = 0.1
"""Seconds between two looks at a wave: nobody reads faster, and on a GPU each look waits for all that is under way."""


class Progress(Protocol):
    """What watches a run. One evaluation calls start, then update many times, then finish."""

    def start(self, title: str, samples: int, finished: int) -> None:
        """A run begins; so many of its samples were finished earlier."""

    def update(self, finished: float, robust: Rate) -> None:
        """So many samples are finished (a fraction counts those in flight); so many of this run still stand."""

    def finish(self) -> None:
        """The run has ended, well or not."""


class NoProgress:
    """Watches and says nothing."""

    def start(self, title: str, samples: int, finished: int) -> None:
        """Say nothing."""

    def update(self, finished: float, robust: Rate) -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""


class ProgressMeter:
    """Adds up waves and rows into what a Progress shows."""

    def __init__(self, progress: Progress, total: int, missing: Sized) -> None:
        self._progress = progress
        self._robust = Rate(0, 0)
        self.total = total
        self.finished = total - len(missing)

    def on_step(self, attack: Attack[Any], rows: int) -> Callable[[Ledger], None]:
        """Follow one wave: rows that are done count whole, the others by how far the attack has come."""
        length = max(1, getattr(attack, "steps", 1) * getattr(attack, "restarts", 1))
        due = 0.0

        def on_step(ledger: Ledger) -> None:
            nonlocal due
            if time.monotonic() < due:
                return
            due = time.monotonic() + PAUSE
            alive = int((~ledger.done).sum())
            part = rows - alive + alive * min(1.0, int(ledger.iterations.max()) / length)
            standing = Rate(self._robust.count + alive, self._robust.total + rows)
            self._progress.update(self.finished + part, standing)

        return on_step

    def wave_done(self, robust: Rate, failed: int = 0) -> None:
        """Add a finished wave, and the samples in it that the model failed on."""
        self.finished += robust.total + failed
        self._robust = Rate(self._robust.count + robust.count, self._robust.total + robust.total)
        self._progress.update(self.finished, self._robust)
