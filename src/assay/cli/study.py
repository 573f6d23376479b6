"""`assay study`: a paper's experiments on this zoo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from assay.studies.dong2020 import Panel


def study(
    paper: Literal["dong2020"],
    /,
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
    """Repeat a paper's experiments on this zoo: its tables, its figures, and which of its findings hold.

    Finished runs are kept: the same command resumes, and more models or images add only what is missing.

    Parameters
    ----------
    paper
        Dong et al. 2020, Benchmarking Adversarial Robustness: 15 attacks, 8 defenses.
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
    from assay.studies import dong2020
    from assay.studies.study import Study, listed

    terminal = Terminal(quiet=quiet)
    scale = dong2020.QUICK if quick else dong2020.FULL
    rows, missing = dong2020.choose(models or scale.rows)
    for row in missing:
        terminal.say(f"Left out: {row.label}, as its model {row.model} is not in the zoo.")
    if not rows:
        raise BadRequest("None of these rows has a model in the zoo: name others with --models.")
    whole = datasets.load(data)
    dataset = whole.take(min(scale.images or len(whole), len(whole)) if limit is None else limit)
    plan = Study(dong2020.cells(rows, scale), dataset, out, seed, device)
    if quick:
        images = f"{len(dataset)} images, at most {scale.query_images} for attacks that query"
        terminal.say(f"Quick: {images}; {scale.says}; rows {listed([row.label for row in rows])} only.")
    terminal.say(f"{len(plan.cells)} runs, {_left(plan.estimate())}.")
    with terminal.progress(len(plan.cells)) as progress:
        results = {cell.place: result for cell, result in plan.run(progress)}
    bench = dong2020.Bench(tuple(rows), tuple(missing), results, scale.says)
    found = dong2020.write(bench, out, _draw)
    for table in dong2020.tables(bench):
        terminal.say(table.title)
        terminal.listing(list(table.heading), [list(line) for line in table.lines])
    terminal.listing(["", "finding", ""], [[str(one.number), one.claim, one.verdict] for one in found])
    terminal.say(f"Tables, figures and findings: {out / 'study.md'}")


def _left(seconds: float) -> str:
    from assay.studies.study import spoken

    return f"about {spoken(seconds)} at most here, less where samples fall early" if seconds else "all of them finished"


def _draw(panel: "Panel", path: Path) -> None:
    from assay.report import charts

    charts.save(charts.Chart(panel.curves, panel.norm.name, (panel.norm.eps,), False, ()), path)
