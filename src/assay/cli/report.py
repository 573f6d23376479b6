"""`assay report`: a page from runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def report(
    runs: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o")] = Path("report"),
) -> None:
    """Write a report of finished runs that opens in any browser.

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold some.
    out
        Folder of the report.
    """
    from assay.cli.terminal import Terminal
    from assay.report import build

    Terminal().say(f"Report: {build(runs, out)}")
