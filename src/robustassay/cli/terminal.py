"""Progress bars and result tables in the terminal."""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustassay.cli.bars import RunBars, run_bars
from robustassay.cli.result_table import numbers, result_table
from robustassay.printable import escape_lines

if TYPE_CHECKING:
    from robustassay.evaluation import Result


LONG_TEXT: Final = 24
"""Characters above which a cell of a plain table may be folded."""


class Terminal:
    """Prints progress to the error stream and results to the output stream, so that results can be piped."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        # A pipe has no width: lines stay whole, unless the caller names a width.
        self._out = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 160)
        self._err = Console(stderr=True)

    def say(self, sentence: str) -> None:
        """Print a line that is not a result."""
        if not self._quiet:
            self._err.print(_text(sentence), soft_wrap=True)

    @contextlib.contextmanager
    def progress(self, runs: int) -> "Iterator[RunBars]":
        """Show one bar for all runs and one for the current run."""
        live = self._err.is_terminal and not self._quiet
        with run_bars(self._err, live) as bars:
            yield RunBars(bars, runs, None if live or self._quiet else self._err)

    def table(self, results: "Sequence[Result]") -> None:
        """Print one line per run, with as many columns as there is room for."""
        self._out.print(result_table(results, self._out.width))
        invalid = sum(result.invalid_claims for result in results)
        if invalid:
            self._out.print(f"{invalid} claimed successes were not verified; they count as failed attacks.")

    def heading(self, result: "Result") -> None:
        """Print the name of the model that the next lines are about."""
        self._out.print(_text(f"\n{numbers(result)['model']}"))

    def warnings(self, result: "Result") -> None:
        """Print the robust accuracy after each stage, every flag, and in one line how far the number can be trusted."""
        for part in result.parts.values() or [result]:
            if part.stages:
                stages = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in part.stages.items())
                self._out.print(
                    _text(f"{part.manifest['spec']['attack']['name']}, robust accuracy after each stage: {stages}")
                )
            self._remedy(part)
        for name, text in result.flags.items():
            self._out.print(_text(f"Flag {name}: {text}"))
        for note in result.notes:
            self._out.print(_text(f"Warning: {note}"))
        if protocols := result.random_protocols:
            self._out.print(_text(protocols.summary))
        self._out.print(_text(result.assessment))

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
        """Print one result as a sentence: the bottom line."""
        text = str(result)
        self._out.print(_text(text[0].upper() + text[1:]), style="bold")

    def json(self, results: "Sequence[Result]") -> None:
        """Print a list with one JSON object per run."""
        print(json.dumps([numbers(result) for result in results], indent=2))

    def title(self, text: str) -> None:
        """Print the title of a table, if there is one."""
        if text:
            self._out.print(_text(text), style="bold")

    def paragraph(self, text: str) -> None:
        """Print a text."""
        self._out.print(_text(text))

    def command(self, label: str, command: str) -> None:
        """Print a command below its label, in lines that a shell reads as one."""
        self._out.print(_text(label))
        lines = [" "]
        for word in map(shlex.quote, shlex.split(command)):
            if len(lines[-1]) + len(word) + 3 > self._out.width:
                lines.append("   ")
            lines[-1] += f" {word}"
        self._out.print(_text(" \\\n".join(lines)), soft_wrap=True)

    def listing(self, columns: list[str], rows: list[list[str]], drop: Sequence[str] = ()) -> None:
        """Print a plain table; where the terminal is narrow, the columns in `drop` are left out, in this order."""
        widths = [
            max((cell_len(text) for text in (name, *cells)), default=0)
            for name, *cells in zip(columns, *rows, strict=True)
        ]
        kept = list(range(len(columns)))
        left_out = [columns.index(name) for name in drop]
        while left_out and sum(min(widths[at], LONG_TEXT) + 3 for at in kept) > self._out.width:
            kept.remove(left_out.pop(0))
        table = Table(box=box.SIMPLE_HEAD)
        for at in kept:
            words = (word for row in (columns, *rows) for word in row[at].split())
            least = min(LONG_TEXT, max(map(cell_len, words), default=1))  # words are cut only where they are long
            table.add_column(columns[at], overflow="fold", no_wrap=widths[at] <= LONG_TEXT, min_width=least)
        for row in rows:
            table.add_row(*(_text(row[at]) for at in kept))
        self._out.print(table)


def _text(text: str) -> Text:
    """Return a text to print; names and titles in it may come from strangers."""
    return Text(escape_lines(text))
