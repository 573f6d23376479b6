"""`assay study liu2017`: Delving into Transferable Adversarial Examples on this zoo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from robustassay.cli.study.scope import WHOLE, Scope, conclude

if TYPE_CHECKING:
    from robustassay.studies.liu2017 import Figure


def liu2017(
    *,
    scope: Scope = WHOLE,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    out: Path = Path("runs/liu2017"),
) -> None:
    """Repeat Liu et al. 2017, transfer between models with and without ensembles: tables, figures and findings.

    Finished examples and tables are kept: the same command resumes.

    Parameters
    ----------
    models
        Three models or more, such as resnet56 vgg16 alexnet; five of different families by default.
    out
        Folder of the examples, tables, figures and findings.
    """
    import dataclasses

    from robustassay import data as datasets
    from robustassay.cli.terminal import Terminal
    from robustassay.data.frame import Frame
    from robustassay.data.photo_frames import apply_frame
    from robustassay.evaluation.model_ref import choose_device
    from robustassay.evaluation.progress import NoProgress
    from robustassay.studies import liu2017 as paper
    from robustassay.studies.crafting import LoadedModel
    from robustassay.studies.photographs import at_hand, networks
    from robustassay.studies.study import spoken

    terminal = Terminal(quiet=scope.quiet)
    scale = paper.QUICK if scope.quick else paper.FULL
    if scope.on_photographs:
        scale = paper.IMAGENET_QUICK if scope.quick else paper.IMAGENET
    scale = scale if scope.limit is None else dataclasses.replace(scale, images=scope.limit)
    dataset, where = datasets.load(scope.images_named), choose_device(scope.device)
    if scope.on_photographs:
        # An example is one image that all models are shown: those of another size resize it themselves.
        dataset = apply_frame(dataset.take(min(scale.candidates or len(dataset), len(dataset))), Frame((224, 224), 256))
        named = paper.choose(networks(models) if models else at_hand(scale.models))
    else:
        named = paper.choose(models or scale.models)
    members = {name: LoadedModel.of(model, name, len(dataset.classes), where) for name, model in named.items()}
    bench = paper.Bench(members, dataset, scale, out, scope.seed, NoProgress())
    if scope.quick:
        terminal.say(f"Quick: {scale.says}.")
    terminal.say(f"{len(bench.images)} images that all {len(members)} models classify correctly.")
    seconds = paper.estimate(bench)
    todo = f"{paper.pieces(bench)} pieces of work, about {spoken(seconds)} here."
    terminal.say(todo if seconds else "All examples are made; what may be missing beside them takes a minute or so.")
    with terminal.progress(paper.pieces(bench)) as progress:
        tables, found = paper.write(dataclasses.replace(bench, progress=progress), _draw)
    conclude(terminal, [table for table in tables if table.name in paper.SHOWN], found, out)


def _draw(figure: "Figure", path: Path) -> None:
    from robustassay.analysis.transfer import TransferMatrix
    from robustassay.report.charts import matrices, planes
    from robustassay.studies.liu2017.figures import Boundaries, Distributions, Lines, Rays, Versus, Zooms

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
