"""What every study is asked, and how it ends."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal
    from robustassay.data import Dataset
    from robustassay.studies.page import Finding, Table


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much of a paper, on what, and where."""

    limit: Annotated[int | None, Parameter(help="Images, at most; as many as the study takes by default.")] = None
    quick: Annotated[bool, Parameter(help="A small part that two cores finish in about ten minutes.")] = False
    dataset: Annotated[
        Literal["cifar10", "imagenet"],
        Parameter(help="What the models are for: this zoo's small images, or photographs."),
    ] = "cifar10"
    data: Annotated[
        str | None,
        Parameter(help="Images that the models know (see `assay list datasets`); cifar10-1k or imagenet by default."),
    ] = None
    weights: Annotated[Path | None, Parameter(help="Folder of weights of networks for ImageNet.")] = None
    device: Annotated[Literal["cpu", "cuda"] | None, Parameter(help="Where to compute; a GPU where there is one.")] = (
        None
    )
    seed: Annotated[int, Parameter(help="Of all random numbers.")] = 0
    quiet: Annotated[bool, Parameter(help="Print the tables and findings only.")] = False

    @property
    def images_named(self) -> str:
        """The dataset asked for, or the usual one."""
        return self.data or ("imagenet" if self.on_photographs else "cifar10-1k")

    @property
    def on_photographs(self) -> bool:
        """Whether the study is about ImageNet; its weights are then looked for where the user says."""
        if self.weights is not None:
            # In the environment, as models are loaded by name everywhere, in worker processes too.
            os.environ["ASSAY_WEIGHTS"] = str(self.weights)
        return self.dataset == "imagenet"

    def images(self, usual: int | None) -> "Dataset":
        """Load the first images: as many as asked for, else the usual number, else all."""
        from robustassay import data as datasets

        whole = datasets.load(self.images_named)
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
