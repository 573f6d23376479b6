"""`assay study dong2020`: Benchmarking Adversarial Robustness on this zoo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from assay.studies.dong2020 import Panel


def dong2020(
    *,
    limit: int | None = None,
    quick: bool = False,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    data: str = "cifar10-1k",
    device: Literal["cpu", "cuda"] | None = None,
    seed: int = 0,
    out: Path = Path("runs/dong2020"),
    quiet: bool = False,
) -> None:
    """Repeat Dong et al. 2020, 15 attacks on 8 defenses: tables, figures, and which of the five findings hold.

    Finished runs are kept: the same command resumes, and more models or images add only what is missing.

    Parameters
    ----------
    limit
        Images, at most; all of the dataset by default.
    quick
        A small part of it that two cores finish in about ten minutes.
    models
        Rows of the paper such as PGD-AT, or other zoo models; all rows by default.
    data
        A CIFAR-10 dataset (see `assay list datasets`).
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
    from assay.errors import BadRequest
    from assay.studies import dong2020 as paper
    from assay.studies.study import Study, listed, time_left

    terminal = Terminal(quiet=quiet)
    scale = paper.QUICK if quick else paper.FULL
    rows, missing = paper.choose(models or scale.rows)
    for row in missing:
        terminal.say(f"Left out: {row.label}, as its model {row.model} is not in the zoo.")
    if not rows:
        raise BadRequest("None of these rows has a model in the zoo: name others with --models.")
    whole = datasets.load(data)
    dataset = whole.take(min(scale.images or len(whole), len(whole)) if limit is None else limit)
    plan = Study(paper.cells(rows, scale), dataset, out, seed, device)
    if quick:
        images = f"{len(dataset)} images, at most {scale.query_images} for attacks that query"
        terminal.say(f"Quick: {images}; {scale.says}; rows {listed([row.label for row in rows])} only.")
    terminal.say(f"{len(plan.cells)} runs, {time_left(plan.estimate())}.")
    with terminal.progress(len(plan.cells)) as progress:
        results = {cell.place: result for cell, result in plan.run(progress)}
    bench = paper.Bench(tuple(rows), tuple(missing), results, scale.says)
    found = paper.write(bench, out, _draw)
    for table in paper.tables(bench):
        terminal.say(table.title)
        terminal.listing(list(table.heading), [list(line) for line in table.lines])
    terminal.listing(["", "finding", ""], [[str(one.number), one.claim, one.verdict] for one in found])
    terminal.say(f"Tables, figures and findings: {out / 'study.md'}")


def _draw(panel: "Panel", path: Path) -> None:
    from assay.report import charts

    charts.save(charts.Chart(panel.curves, panel.norm.name, (panel.norm.eps,), False, ()), path)
