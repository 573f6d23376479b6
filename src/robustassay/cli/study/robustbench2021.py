"""`assay study robustbench2021`: a leaderboard and what else robust models are like, on this zoo."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from robustassay.cli.study.scope import WHOLE, Scope


def robustbench2021(
    *,
    scope: Scope = WHOLE,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    members: str | None = None,
    shift: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    outside: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    published: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    out: Path = Path("runs/robustbench2021"),
) -> None:
    """Repeat Croce et al. 2021, RobustBench: a leaderboard, Figures 2 to 7, and which of seven findings hold.

    Finished work is kept: the same command resumes, and more models or images add only what is missing.

    Parameters
    ----------
    models
        Zoo models or others; all of the zoo by default.
    members
        A dataset that the models were trained on, such as `cifar10:FOLDER/data_batch_1`: Figure 7 needs one.
    shift
        Other datasets of the same classes, beside corruptions.
    outside
        Datasets of other things, beside those made from the images.
    published
        Folders in RobustBench's `model_info` form, to stand on the leaderboard too.
    out
        Folder of the runs, leaderboard, tables, figures and findings.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.leaderboard.writing import HEADING, lines
    from robustassay.report.charts import panels
    from robustassay.studies import analyses
    from robustassay.studies import robustbench2021 as paper
    from robustassay.studies.photographs import at_hand, networks
    from robustassay.studies.study import time_left

    terminal = Terminal(quiet=scope.quiet)
    scale = paper.QUICK if scope.quick else paper.FULL
    if scope.on_photographs:
        scale = paper.IMAGENET_QUICK if scope.quick else paper.IMAGENET
        models = networks(models) if models or not scale.models else at_hand(scale.models)
    test = scope.images(scale.images)
    bench = paper.workbench(
        paper.choose(models, scale), test, scale, out, members, shift or (), outside or (), scope.seed, scope.device
    )
    kinds = paper.kinds(members, len(test.classes))
    needs = analyses.needs(bench, kinds)
    if scope.quick:
        terminal.say(f"Quick: {len(test)} images, {bench.robust_images} of them under attack; {scale.says}.")
    terminal.say(f"{len(bench.models)} models, {len(needs)} pieces of work, {time_left(bench.estimate(needs))}.")
    with terminal.progress(len(needs)) as progress:
        done = bench.run(needs, progress)
    report = paper.write(done, analyses.make(done, kinds), scale, out, bench.folders(), published or (), panels.draw)
    for board in report.boards:
        terminal.say(f"{board.threat}, {len(board.entries)} entries")
        terminal.listing(list(HEADING), lines(board))
    terminal.listing(["", "finding", ""], [[str(one.number), one.claim, one.verdict] for one in report.findings])
    terminal.say(f"Leaderboard, tables, figures and findings: {out / 'study.md'}")
