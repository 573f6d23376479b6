"""`assay run`: the embedded default."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def run(
    *,
    limit: int = 200,
    seed: int = 0,
    model: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    out: Path = Path("runs"),
    report: Path = Path("report"),
    quiet: bool = False,
) -> None:
    """Evaluate the embedded models on embedded images, print a table and write a report.

    Finished work is kept: run it again to resume, or with a larger limit to extend it.

    Parameters
    ----------
    limit
        Images, of the 1,000 embedded ones.
    seed
        Of all random numbers.
    model
        Zoo names; the four smaller embedded models by default.
    out
        Folder of the runs.
    report
        Folder of the report.
    quiet
        Print the final table only.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.report import build
    from robustassay.studies import quickstart

    terminal = Terminal(quiet=quiet)
    runs = quickstart.declared_runs(out, limit, seed, tuple(model) if model else None)
    with terminal.progress(len(runs)) as progress:
        results = quickstart.plan(runs).run(progress)
    terminal.table(results)
    page = build([run.folder for run in runs], report)
    terminal.say(f"Report: {page}")
