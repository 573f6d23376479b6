"""The one command behind `assay study PAPER`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from robustassay.cli.study.options import DEFAULT, NO_EXTRA_DATA, ExtraDataOptions, StudyOptions

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal
    from robustassay.studies.catalogue import Paper
    from robustassay.studies.page import Finding, Table
    from robustassay.studies.scope import Scope
    from robustassay.studies.study import Study

RESUMES = "Finished work is kept: the same command resumes, and more models or images add only what is missing."


def command_for(paper: "Paper") -> Callable[..., None]:
    """Make the command of a paper, with the help that the catalogue gives."""
    models_type: Any = Annotated[list[str] | None, Parameter(consume_multiple=True, help=paper.models)]
    out_type: Any = Annotated[Path, Parameter(help="Folder of the runs, tables, figures and findings.")]
    default_out = Path(f"runs/{paper.name}")

    def plain(*, options: StudyOptions = DEFAULT, models: models_type = None, out: out_type = default_out) -> None:
        run_study(paper.study(), options.scope(models, out), options.quiet, options.publish)

    def with_extra_data(
        *,
        options: StudyOptions = DEFAULT,
        extra: ExtraDataOptions = NO_EXTRA_DATA,
        models: models_type = None,
        out: out_type = default_out,
    ) -> None:
        run_study(paper.study(), options.scope(models, out, extra.extra_data()), options.quiet, options.publish)

    command: Callable[..., None] = with_extra_data if paper.uses_extra_data else plain
    command.__name__ = paper.name
    command.__doc__ = f"{paper.summary}\n\n{RESUMES}"
    return command


def run_study(study: "Study[Any]", scope: "Scope", quiet: bool, publish: Path | None = None) -> None:
    """Plan, estimate, run and write a study, and print what it found; `publish` writes what is finished elsewhere."""
    from robustassay.cli.study.drawing import draw, draw_small
    from robustassay.cli.terminal import Terminal
    from robustassay.studies.paper_models import resolve
    from robustassay.studies.provenance import provenance_of
    from robustassay.studies.running import compute
    from robustassay.studies.timing import time_left
    from robustassay.studies.writer import write

    terminal = Terminal(quiet=quiet)
    resolved, left_out = resolve(study.paper_models, scope)
    plan = study.plan(resolved)
    for note in (*left_out, *plan.notes):
        terminal.say(note)
    if publish is None:
        terminal.say(f"{len(plan.tasks)} tasks, {time_left(plan.seconds())}.")
    with terminal.progress(len(plan.tasks)) as progress:
        measurements = compute(plan, scope, progress) if publish is None else plan.read(progress)
    provenance = provenance_of(scope.out, scope.command(study.name))
    written = write(study, measurements, publish or scope.out, draw_small if publish else draw, provenance)
    if publish is not None:
        provenance.write(publish)
    print_study(terminal, written.tables, written.findings, written.page)


def print_study(terminal: "Terminal", tables: "Iterable[Table]", findings: "Iterable[Finding]", page: Path) -> None:
    """Print the tables and the verdicts, and where the page is."""
    for table in tables:
        if table.printed:
            terminal.say(table.title)
            terminal.listing(list(table.heading), [list(line) for line in table.lines])
    verdicts = [[str(one.number), one.claim, one.measured or "", one.verdict] for one in findings]
    if verdicts:
        terminal.listing(["", "finding", "here", ""], verdicts)
    terminal.say(f"Tables, figures and findings: {page}")
