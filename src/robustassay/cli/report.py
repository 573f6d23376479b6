"""`assay report`: a website of finished runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def report(
    runs: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o")] = Path("report"),
) -> None:
    """Write a report of finished runs: a website that opens from the disk, without a server or network.

    Parameters
    ----------
    runs
        Folders of runs, studies or analyses, or folders above them.
    out
        Folder of the report; only files of an earlier report are replaced.
    """
    from rich.console import Console
    from rich.progress import Progress

    from robustassay.cli.terminal import Terminal
    from robustassay.report import build

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("reading runs", total=None)
        index = build(runs, out, lambda done, total: bars.update(bar, completed=done, total=total))
    Terminal().say(f"Report: {index}")
