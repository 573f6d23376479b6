"""Progress in notebooks: one bar that is updated in place, without widgets."""

import sys
import time
from html import escape
from importlib import import_module
from typing import Any, Final

from robustassay.analysis.rates import Rate, percent
from robustassay.evaluation.progress import NoProgress, Progress

SECONDS_BETWEEN: Final = 0.3


def default_progress() -> Progress:
    """Return a bar in a notebook, and silence elsewhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return NotebookProgress() if getattr(shell, "kernel", None) is not None else NoProgress()


class NotebookProgress:
    """Shows one bar per run, and removes it at the end of the run."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._html: Any = None

    def start(self, title: str, samples: int, finished: int) -> None:
        """Show the bar of a run."""
        ipython: Any = import_module("IPython.display")  # present in every notebook, and without types
        self._title, self._samples, self._began, self._started_at = title, samples, finished, time.monotonic()
        self._due = self._started_at + SECONDS_BETWEEN
        self._html = ipython.HTML
        self._shown = ipython.display(self._html(self._bar(finished, "")), display_id=True)

    def update(self, finished: float, robust: Rate) -> None:
        """Move the bar, a few times per second at most."""
        if self._shown is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + SECONDS_BETWEEN
            self._shown.update(self._html(self._bar(finished, f"robust so far {percent(robust.value)}, ")))

    def finish(self) -> None:
        """Remove the bar."""
        if self._shown is not None:
            self._shown.update(self._html(""))
            self._shown = None

    def _bar(self, finished: float, state: str) -> str:
        seconds, done = time.monotonic() - self._started_at, finished - self._began
        left = f", about {seconds / done * (self._samples - finished):.0f} s left" if done > 0 else ""
        return (
            f"<progress value='{finished:.2f}' max='{self._samples}'></progress> {escape(self._title)}: "
            f"{finished:.0f} of {self._samples} samples, {state}{seconds:.0f} s{left}"
        )
