"""`assay study su2018`: accuracy against robustness on this zoo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from assay.studies.su2018 import Figure


def su2018(
    *,
    limit: int | None = None,
    quick: bool = False,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    data: str = "cifar10-1k",
    device: Literal["cpu", "cuda"] | None = None,
    seed: int = 0,
    out: Path = Path("runs/su2018"),
    quiet: bool = False,
) -> None:
    """Repeat Su et al. 2018, is robustness the cost of accuracy: the law, the frontier, transfer, and four findings.

    Finished work is kept: the same command resumes, and more models or images add only what is missing.

    Parameters
    ----------
    limit
        Images, at most; all of the dataset by default.
    quick
        A small part of it that two cores finish in about ten minutes.
    models
        Zoo models or others; by default all of the zoo that were trained on clean images alone.
    data
        A dataset that the models know (see `assay list datasets`).
    device
        Where to compute; a GPU where there is one.
    seed
        Of all random numbers.
    out
        Folder of the runs, tables, figures and findings.
    quiet
        Print the tables and findings only.
    """
    from assay import data as datasets
    from assay.cli.terminal import Terminal
    from assay.studies import su2018 as paper
    from assay.studies.study import time_left

    terminal = Terminal(quiet=quiet)
    scale = paper.QUICK if quick else paper.FULL
    whole = datasets.load(data)
    dataset = whole.take(min(scale.images or len(whole), len(whole)) if limit is None else limit)
    work = paper.Work(paper.choose(models or scale.models), dataset, scale, out, seed, device)
    if quick:
        terminal.say(f"Quick: {len(dataset)} images; {scale.says}.")
    terminal.say(f"{len(work.models)} models, {work.pieces} pieces of work, {time_left(work.estimate())}.")
    with terminal.progress(work.pieces) as progress:
        bench = work.run(progress)
    found = paper.write(bench, out, _draw)
    for table in paper.tables(bench):
        terminal.say(table.title)
        terminal.listing(list(table.heading), [list(line) for line in table.lines])
    terminal.listing(["", "finding", ""], [[str(one.number), one.claim, one.verdict] for one in found])
    terminal.say(f"Tables, figures and findings: {out / 'study.md'}")


def _draw(figure: "Figure", path: Path) -> None:
    from assay.analysis.law import Scatter
    from assay.report import matrices, scatter

    if isinstance(figure.content, Scatter):
        scatter.draw(figure.content, path, figure.title)
    else:
        matrices.draw_transfer(figure.content, path, figure.title)
