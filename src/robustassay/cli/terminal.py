"""Progress bars and result tables in the terminal."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from robustassay.eps import format_eps
from robustassay.printable import escape_lines

if TYPE_CHECKING:
    from robustassay.analysis.rates import Rate
    from robustassay.evaluation import Result


class Terminal:
    """Prints progress to the error stream and results to the output stream, so that results can be piped."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._out = Console(width=None if sys.stdout.isatty() else 160)
        self._err = Console(stderr=True)

    def say(self, sentence: str) -> None:
        """Print a line that is not a result."""
        if not self._quiet:
            self._err.print(_text(sentence), soft_wrap=True)

    @contextlib.contextmanager
    def progress(self, runs: int) -> "Iterator[RunBars]":
        """Show one bar for all runs and one for the current run."""
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        live = self._err.is_terminal and not self._quiet
        with Progress(*columns, console=self._err, disable=not live) as bars:
            yield RunBars(bars, runs, None if live or self._quiet else self._err)

    def table(self, results: "Sequence[Result]") -> None:
        """Print one line per run."""
        table = Table(box=box.SIMPLE_HEAD)
        for heading in ("model", "threat", "attack"):
            table.add_column(heading)
        for heading in ("n", "clean", "robust", "95 % interval", "attack success", "gradients/image", "seconds"):
            table.add_column(heading, justify="right")
        table.add_column("evidence")
        for result in results:
            table.add_row(*map(_text, _line(result)))
        self._out.print(table)
        invalid = sum(result.invalid_claims for result in results)
        if invalid:
            self._out.print(f"{invalid} claimed successes were not verified; they count as failed attacks.")

    def warnings(self, result: "Result") -> None:
        """Print the robust accuracy after each stage, every flag, and how many samples are in doubt."""
        for part in result.parts.values() or [result]:
            if part.stages:
                stages = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in part.stages.items())
                self._out.print(
                    _text(f"{part.manifest['spec']['attack']['name']}, robust accuracy after each stage: {stages}")
                )
            self._remedy(part)
        for name, text in result.flags.items():
            self._out.print(_text(f"Flag {name}: {text}"))
        if protocols := result.random_protocols:
            self._out.print(_text(protocols.summary))
        self._out.print(_text(f"Evidence: {result.evidence.summary}."))
        if result.self_test.examined:
            self._out.print(_text(f"The self-test took {result.self_test.cost}."))
        if count := len(result.doubtful):
            which, it = ("1 unbroken sample is", "it") if count == 1 else (f"{count} unbroken samples are", "them")
            remote = "service" in result.manifest.get("spec", {}).get("model", {})
            how = "spend more queries" if remote else f"--confirm runs AutoAttack on {it}"
            self._out.print(_text(f"{which} in doubt: a stronger attack may still break {it}; {how}."))

    def _remedy(self, part: "Result") -> None:
        """Print which remedy a part applies, why, and how many samples it did not break."""
        applied = part.manifest.get("adaptive", {})
        if "remedy" in applied:
            left = round(part.robust_accuracy * len(part.records))
            self._out.print(
                _text(
                    f"Remedy {applied['remedy']} (for {applied['because']}): {applied['how']}; of {len(part.records)} "
                    f"unbroken samples, {len(part.records) - left} were broken."
                )
            )

    def result(self, result: "Result") -> None:
        """Print one result as a sentence."""
        self._out.print(_text(str(result)))

    def json(self, results: "Sequence[Result]") -> None:
        """Print a list with one JSON object per run."""
        print(json.dumps([_numbers(result) for result in results], indent=2))

    def listing(self, columns: list[str], rows: list[list[str]]) -> None:
        """Print a plain table."""
        table = Table(box=box.SIMPLE_HEAD)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*map(_text, row))
        self._out.print(table)


class RunBars:
    """Shows the progress of runs; without a terminal, prints one line per run."""

    def __init__(self, bars: Progress, runs: int, log: Console | None) -> None:
        self._bars, self._log = bars, log
        self._overall = bars.add_task("all runs", total=runs, state=f"0/{runs}")
        self._runs, self._finished = runs, 0
        self._task: TaskID | None = None

    def start(self, title: str, samples: int, finished: int) -> None:
        """Start the bar of a run."""
        if self._log:
            line = f"[{self._finished + 1}/{self._runs}] {title}, {samples} samples, {finished} done"
            self._log.print(_text(line), soft_wrap=True)
        self._task = self._bars.add_task(escape_lines(title), total=samples, completed=finished, state="")

    def update(self, finished: float, robust: "Rate") -> None:
        """Move the bar and show the robust accuracy so far."""
        if self._task is not None:
            self._bars.update(self._task, completed=finished, state=f"robust so far {robust.value:.1%}")
            total = self._bars.tasks[self._bars.task_ids.index(self._task)].total or 1
            self._bars.update(self._overall, completed=self._finished + finished / total)

    def finish(self) -> None:
        """Remove the bar of a run."""
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
        self._finished += 1
        self._bars.update(self._overall, completed=self._finished, state=f"{self._finished}/{self._runs}")


def _text(text: str) -> Text:
    """Return a text to print; names and titles in it may come from strangers."""
    return Text(escape_lines(text))


def _numbers(result: "Result") -> dict[str, Any]:
    spec, low_high = result.manifest["spec"], result.interval
    return {
        "model": spec["model"]["name"],
        "data": spec["data"]["name"],
        "threat": spec["threat"],
        "attack": spec["attack"],
        "samples": len(result.records),
        "clean_accuracy": result.clean_accuracy,
        "robust_accuracy": result.robust_accuracy,
        "interval": list(low_high),
        "attack_success_rate": result.attack_success_rate,
        "invalid_claims": result.invalid_claims,
        "doubtful": len(result.doubtful),
        "flags": result.flags,
        "stages": result.stages,
        "evidence": result.evidence.to_json(),
        "random_protocols": None if result.random_protocols is None else result.random_protocols.to_json(),
        "adaptive": result.manifest.get("adaptive"),
        "key": result.manifest["key"],
    }


def _line(result: "Result") -> list[str]:
    numbers = _numbers(result)
    threat = numbers["threat"]
    goal = f" {threat['target']}" if threat["target"] else ""
    low, high = numbers["interval"]
    return [
        numbers["model"],
        f"{threat['norm']} {format_eps(threat['eps'])}{goal}",
        numbers["attack"]["name"],
        f"{numbers['samples']}",
        f"{numbers['clean_accuracy']:.1%}",
        f"{numbers['robust_accuracy']:.1%}",
        f"{low:.1%} - {high:.1%}",
        f"{numbers['attack_success_rate']:.1%}",
        f"{result.records['backwards'].mean():.1f}",
        f"{result.records['seconds'].sum():.1f}",
        _evidence(result),
    ]


def _evidence(result: "Result") -> str:
    """Write the grade of a result and the share of its self-test in few words."""
    rate = result.self_test.rate
    return result.evidence.label + (f", self-test {rate.count}/{rate.total}" if rate.total else ", no self-test")
