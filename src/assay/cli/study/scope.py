"""What every study is asked, and how it ends."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

if TYPE_CHECKING:
    from assay.cli.terminal import Terminal
    from assay.data import Dataset
    from assay.studies.page import Finding, Table


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much of a paper, on what, and where."""

    limit: Annotated[int | None, Parameter(help="Images, at most; as many as the study takes by default.")] = None
    quick: Annotated[bool, Parameter(help="A small part that two cores finish in about ten minutes.")] = False
    data: Annotated[str, Parameter(help="A dataset that the models know (see `assay list datasets`).")] = "cifar10-1k"
    device: Annotated[Literal["cpu", "cuda"] | None, Parameter(help="Where to compute; a GPU where there is one.")] = (
        None
    )
    seed: Annotated[int, Parameter(help="Of all random numbers.")] = 0
    quiet: Annotated[bool, Parameter(help="Print the tables and findings only.")] = False

    def images(self, usual: int | None) -> "Dataset":
        """Load the first images: as many as asked for, else the usual number, else all."""
        from assay import data as datasets

        whole = datasets.load(self.data)
        return whole.take(min(usual or len(whole), len(whole)) if self.limit is None else self.limit)


WHOLE = Scope()
"""What is asked where nothing is said."""


def conclude(terminal: "Terminal", tables: "Iterable[Table]", found: "Iterable[Finding]", out: Path) -> None:
    """Print the tables and the findings, and say where the rest is."""
    for table in tables:
        terminal.say(table.title)
        terminal.listing(list(table.heading), [list(line) for line in table.lines])
    terminal.listing(["", "finding", ""], [[str(one.number), one.claim, one.verdict] for one in found])
    terminal.say(f"Tables, figures and findings: {out / 'study.md'}")
