"""Progress bars of runs, with labelled numbers."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from robustassay.analysis.rates import percent
from robustassay.printable import escape_lines

if TYPE_CHECKING:
    from rich.progress import Task

    from robustassay.analysis.rates import Rate


class LabelledTime(TextColumn):
    """Shows `0:12 elapsed, 0:30 left`."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: "Task") -> Text:
        """Return the text of one bar."""
        left = f", {_clock(task.time_remaining)} left" if task.time_remaining is not None else ""
        return Text(f"{_clock(task.elapsed or 0)} elapsed{left}", no_wrap=True)


class RunBars:
    """Shows the progress of runs; without a terminal, prints one line per run."""

    def __init__(self, bars: Progress, runs: int, log: Console | None) -> None:
        self._bars, self._log = bars, log  # without a log, lines go above the bars
        self._overall = bars.add_task("all runs", total=runs, state=f"0/{runs} runs")
        self._runs, self._finished = runs, 0
        self._task: TaskID | None = None

    def start(self, title: str, samples: int, finished: int) -> None:
        """Start the bar of a run."""
        self._runs = max(self._runs, self._finished + 1)  # remedies add runs
        self._samples = samples
        line = f"[{self._finished + 1}/{self._runs}] {title}, {samples} samples, {finished} done"
        if self._log is not None or not self._bars.disable:
            (self._log or self._bars).print(Text(escape_lines(line)), soft_wrap=True)
        attack = title.partition(" on ")[2].split(", ")[1:2]  # the line above says the rest
        name = escape_lines(attack[0] if attack else title)[:16]
        self._task = self._bars.add_task(name, total=samples, completed=finished, state="")

    def update(self, finished: float, robust: "Rate") -> None:
        """Move the bar and show the robust accuracy so far."""
        if self._task is not None:
            state = f"{finished:.0f}/{self._samples} samples, {percent(robust.value)} robust"
            self._bars.update(self._task, completed=finished, state=state)
            self._bars.update(self._overall, completed=self._finished + finished / (self._samples or 1))

    def finish(self) -> None:
        """Remove the bar of a run."""
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
        self._finished += 1
        state = f"{self._finished}/{self._runs} runs"
        self._bars.update(self._overall, completed=self._finished, total=self._runs, state=state)


def run_bars(console: Console, live: bool) -> Progress:
    """Return the bars: name, bar, samples and robust accuracy, time; narrow terminals get a shorter bar."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24 if console.width > 100 else 6),
        TextColumn("{task.fields[state]}", markup=False),
        LabelledTime(),
    )
    return Progress(*columns, console=console, disable=not live)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
