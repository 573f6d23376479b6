"""The shape of every study: `plan(scope)` gives tasks, running them gives measurements, and these give the page."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar, final

from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation.progress import Progress
from robustassay.interrupt import graceful_interrupt
from robustassay.studies.page import Figure, Finding, Setup, Table
from robustassay.studies.paper_models import PaperModels
from robustassay.studies.scope import Scope
from robustassay.studies.task import Key, Results, Task, TaskCost

M = TypeVar("M")
"""The measurements of a study."""


@final
@dataclass(frozen=True, eq=False)
class Plan(Generic[M]):
    """The tasks of a study within a scope, and how their results become measurements."""

    tasks: tuple[Task, ...]
    measure: Callable[[Results], M] = field(repr=False)
    notes: tuple[str, ...] = ()  # what to tell the user before the tasks start
    partial: bool = False  # whether `measure` works without some of the results
    optional: frozenset[Key] = frozenset()  # those that it works without, where it needs all others

    def seconds(self) -> float:
        """Estimate how long the missing tasks take, at most."""
        return TaskCost.total(task.cost() for task in self.tasks)

    def unfinished(self) -> list[Task]:
        """List the tasks with missing samples."""
        return [task for task in self.tasks if task.missing()]

    def read(self, progress: Progress) -> M:
        """Return the measurements of finished tasks, and compute nothing.

        Where tasks are missing, a plan that cannot do without them raises BadRequest.
        """
        tasks = [task.to_read() for task in self.tasks]
        missing = [task for task in tasks if task.missing()]
        needed = [task for task in missing if task.key not in self.optional]
        if needed and not (self.partial and len(missing) < len(tasks)):
            raise BadRequest(
                f"{len(missing)} of {len(self.tasks)} tasks are not finished, the first of them "
                f"{' '.join(needed[0].key)}: run the same command without --publish first."
            )
        left_out = {task.key for task in missing}
        return replace(self, tasks=tuple(task for task in tasks if task.key not in left_out)).run(progress)

    def run(self, progress: Progress) -> M:
        """Run the missing tasks, read the others, and return the measurements.

        The first interrupt ends the study after the task or wave in progress; the same command resumes.
        """
        results: dict[Key, object] = {}
        with graceful_interrupt() as stop:
            for task in self.tasks:
                if stop.asked:
                    raise Interrupted("Stopped between two tasks: run the same command again to resume.")
                results[task.key] = task.run(results, progress)
        return self.measure(results)


def write_nothing(measurements: object, out: Path) -> None:
    """Attach nothing: most studies are tables, figures and findings alone."""


@final
@dataclass(frozen=True)
class Study(Generic[M]):
    """One paper: what to compute, and what its tables, figures and findings are.

    `M` is the type of the paper's measurements. Everything else is shared: running (`Plan`), writing
    (`robustassay.studies.writer`) and the command line.
    """

    name: str
    title: str  # heading of the page: authors, year, title
    plan: Callable[[Scope], Plan[M]]
    setup: Callable[[M], Setup]
    findings: Callable[[M], list[Finding]]
    tables: Callable[[M], list[Table]]
    figures: Callable[[M], list[Figure]]
    attach: Callable[[M, Path], None] = write_nothing  # writes further files into the study's folder
    paper_models: PaperModels = field(default_factory=dict)  # what `--models paper` means, per dataset
