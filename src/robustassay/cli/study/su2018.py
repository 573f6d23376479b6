"""`assay study su2018`: accuracy against robustness on this zoo."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from robustassay.cli.study.scope import WHOLE, Scope, conclude

if TYPE_CHECKING:
    from robustassay.studies.su2018 import Figure


def su2018(
    *,
    scope: Scope = WHOLE,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    out: Path = Path("runs/su2018"),
) -> None:
    """Repeat Su et al. 2018, is robustness the cost of accuracy: the law, the frontier, transfer, and four findings.

    Finished work is kept: the same command resumes, and more models or images add only what is missing.

    Parameters
    ----------
    models
        Zoo models or others; by default all of the zoo that were trained on clean images alone, or all networks for
        ImageNet whose weights are at hand.
    out
        Folder of the runs, tables, figures and findings.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.studies import su2018 as paper
    from robustassay.studies.photographs import at_hand, networks
    from robustassay.studies.study import time_left

    terminal = Terminal(quiet=scope.quiet)
    scale = paper.QUICK if scope.quick else paper.FULL
    wanted: Sequence[str] | None = models or scale.models
    if scope.on_photographs:
        scale = paper.IMAGENET_QUICK if scope.quick else paper.IMAGENET
        wanted = networks(models) if models or not scale.models else at_hand(scale.models)
    dataset = scope.images(scale.images)
    work = paper.Work(paper.choose(wanted), dataset, scale, out, scope.seed, scope.device)
    if scope.quick:
        terminal.say(f"Quick: {len(dataset)} images; {scale.says}.")
    terminal.say(f"{len(work.models)} models, {work.pieces} pieces of work, {time_left(work.estimate())}.")
    with terminal.progress(work.pieces) as progress:
        bench = work.run(progress)
    found = paper.write(bench, out, _draw)
    conclude(terminal, paper.tables(bench), found, out)


def _draw(figure: "Figure", path: Path) -> None:
    from robustassay.analysis.law import Scatter
    from robustassay.report.charts import matrices, scatter

    if isinstance(figure.content, Scatter):
        scatter.draw(figure.content, path, figure.title)
    else:
        matrices.draw_transfer(figure.content, path, figure.title)
