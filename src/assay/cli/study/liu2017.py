"""`assay study liu2017`: Delving into Transferable Adversarial Examples on this zoo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from assay.studies.liu2017 import Figure


def liu2017(
    *,
    limit: int | None = None,
    quick: bool = False,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    data: str = "cifar10-1k",
    device: Literal["cpu", "cuda"] | None = None,
    seed: int = 0,
    out: Path = Path("runs/liu2017"),
    quiet: bool = False,
) -> None:
    """Repeat Liu et al. 2017, transfer between models with and without ensembles: tables, figures and findings.

    Finished examples and tables are kept: the same command resumes.

    Parameters
    ----------
    limit
        Images, at most; 100 by default, as in the paper.
    quick
        A small part of it that two cores finish in about ten minutes.
    models
        Three models or more, such as resnet56 vgg16 alexnet; five of different families by default.
    data
        A dataset that the models know (see `assay list datasets`).
    device
        Where to compute; a GPU where there is one.
    seed
        Of all random numbers.
    out
        Folder of the examples, tables, figures and findings.
    quiet
        Print the tables and findings only.
    """
    import dataclasses

    from assay import data as datasets
    from assay.cli.terminal import Terminal
    from assay.evaluation.progress import Silence
    from assay.evaluation.subject import choose_device
    from assay.studies import liu2017 as paper
    from assay.studies.making import Member
    from assay.studies.study import spoken

    terminal = Terminal(quiet=quiet)
    scale = paper.QUICK if quick else paper.FULL
    scale = scale if limit is None else dataclasses.replace(scale, images=limit)
    dataset, where = datasets.load(data), choose_device(device)
    named = paper.choose(models or scale.models)
    members = {name: Member.of(model, name, len(dataset.classes), where) for name, model in named.items()}
    bench = paper.Bench(members, dataset, scale, out, seed, Silence())
    if quick:
        terminal.say(f"Quick: {scale.says}.")
    terminal.say(f"{len(bench.images)} images that all {len(members)} models classify correctly.")
    seconds = paper.estimate(bench)
    todo = f"{paper.pieces(bench)} pieces of work, about {spoken(seconds)} here."
    terminal.say(todo if seconds else "All examples are made; what may be missing beside them takes a minute or so.")
    with terminal.progress(paper.pieces(bench)) as progress:
        tables, found = paper.write(dataclasses.replace(bench, progress=progress), _draw)
    for table in tables:
        if table.name not in paper.SHOWN:
            continue
        terminal.say(table.title)
        terminal.listing(list(table.heading), [list(line) for line in table.lines])
    terminal.listing(["", "finding", ""], [[str(one.number), one.claim, one.verdict] for one in found])
    terminal.say(f"Tables, figures and findings: {out / 'study.md'}")


def _draw(figure: "Figure", path: Path) -> None:
    from assay.analysis.transfer import TransferMatrix
    from assay.report import matrices, planes
    from assay.studies.liu2017.figures import Boundaries, Distributions, Lines, Rays, Versus, Zooms

    match figure.content:
        case TransferMatrix() as found:
            matrices.draw_transfer(found, path, figure.title)
        case Distributions(values, axis):
            matrices.draw_distributions(values, path, axis, figure.title)
        case Zooms(regions, along, classes):
            planes.draw_regions(regions, path, classes, along)
        case Boundaries(regions, title, along):
            planes.draw_boundaries(regions, path, title, along)
        case Rays(wrong, end, axis):
            matrices.draw_rays(wrong, end, path, axis, figure.title)
        case Versus(counts, total, axis):
            matrices.draw_versus(counts, total, path, axis, figure.title)
        case Lines(logits, classes):
            planes.draw_linearity(logits, path, classes)
