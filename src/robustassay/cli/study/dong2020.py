"""`assay study dong2020`: Benchmarking Adversarial Robustness on this zoo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from robustassay.cli.study.scope import WHOLE, Scope, conclude

if TYPE_CHECKING:
    from robustassay.studies.dong2020 import Panel


def dong2020(
    *,
    scope: Scope = WHOLE,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    out: Path = Path("runs/dong2020"),
) -> None:
    """Repeat Dong et al. 2020, 15 attacks on 8 defenses: tables, figures, and which of the five findings hold.

    Finished runs are kept: the same command resumes, and more models or images add only what is missing.

    Parameters
    ----------
    models
        Rows of the paper such as PGD-AT, or other zoo models; all rows by default. On ImageNet: Natural, JPEG, Bit-Red,
        R&P, RandMix.
    out
        Folder of the runs, tables, figures and findings.
    """
    from dataclasses import replace

    from robustassay.cli.terminal import Terminal
    from robustassay.errors import BadRequest
    from robustassay.studies import dong2020 as paper
    from robustassay.studies.photographs import networks
    from robustassay.studies.study import Study, listed, time_left

    terminal = Terminal(quiet=scope.quiet)
    scale = paper.QUICK if scope.quick else paper.FULL
    if scope.on_photographs:
        scale = paper.IMAGENET_QUICK if scope.quick else paper.IMAGENET
        rows, missing = paper.choose(models or scale.rows, paper.on_photographs(paper.preferred(networks(None))))
    else:
        rows, missing = paper.choose(models or scale.rows)
    for row in missing:
        terminal.say(f"Left out: {row.label}, as its model {row.model} is not in the zoo.")
    if not rows:
        raise BadRequest("None of these rows has a model in the zoo: name others with --models.")
    dataset = scope.images(scale.images)
    plan = Study(paper.cells(rows, scale), dataset, out, scope.seed, scope.device)
    if scope.quick:
        images = f"{len(dataset)} images, at most {scale.query_images} for attacks that query"
        terminal.say(f"Quick: {images}; {scale.says}; rows {listed([row.label for row in rows])} only.")
    terminal.say(f"{len(plan.cells)} runs, {time_left(plan.estimate())}.")
    with terminal.progress(len(plan.cells)) as progress:
        results = {cell.place: result for cell, result in plan.run(progress)}
    bench = paper.Bench(tuple(rows), tuple(missing), results, scale.says)
    if scope.on_photographs:
        bench = replace(bench, norms=scale.norms, backbone=paper.NATURAL, randomising=paper.PADDED, photographs=True)
    found = paper.write(bench, out, _draw)
    conclude(terminal, paper.tables(bench), found, out)


def _draw(panel: "Panel", path: Path) -> None:
    from robustassay.report.charts import curve_chart

    curve_chart.save(curve_chart.Chart(panel.curves, panel.norm.name, (panel.norm.eps,), False, ()), path)
