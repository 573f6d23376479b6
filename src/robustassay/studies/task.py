"""Tasks: the resumable parts of a study, each with an estimate of what is left of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

import pandas as pd

from robustassay.evaluation.progress import Progress
from robustassay.studies.cache import CachedTable

Key = tuple[str, ...]
"""Name of a task's result within a study: the model or row first, then whatever tells its tasks apart."""

Results = Mapping[Key, Any]
"""Results of finished tasks by key."""


@final
@dataclass(frozen=True)
class TaskCost:
    """Estimated seconds, at most; `once` holds those that several tasks share, by what they are spent on."""

    seconds: float = 0.0
    once: Mapping[Hashable, float] = field(default_factory=dict)

    @classmethod
    def total(cls, costs: "Iterable[TaskCost]") -> float:
        """Add costs up; a shared one counts once."""
        seconds, once = 0.0, dict[Hashable, float]()
        for cost in costs:
            seconds += cost.seconds
            once |= cost.once
        return seconds + sum(once.values())


UNKNOWN_COST: Final = TaskCost(math.nan)
"""The cost of a task that nothing is known of; it makes that of the whole study unknown."""


class Task(ABC):
    """One resumable part of a study; a finished task is read, never repeated."""

    @property
    @abstractmethod
    def key(self) -> Key:
        """Name of the result."""

    @property
    def needs(self) -> tuple[Key, ...] | None:
        """Keys of the tasks whose results it reads, so that it can run beside all others; None: perhaps those of all
        before it.
        """
        return None

    @abstractmethod
    def missing(self) -> int:
        """Count the samples that have no result yet."""

    def to_read(self) -> "Task":
        """Return the same task where its result is only read, for a page: it may need less then."""
        return self

    @abstractmethod
    def cost(self) -> TaskCost:
        """Estimate what the missing part takes."""

    @abstractmethod
    def run(self, results: Results, progress: Progress) -> Any:
        """Compute what is missing and return the whole result.

        `results` holds those of the tasks before this one. `progress` is started and finished exactly once.
        """


@final
@dataclass(frozen=True, eq=False)
class ComputeTask(Task):
    """A task that is done at once: it is finished or not started."""

    name: Key
    title: str
    samples: int
    finished: Callable[[], bool] = field(repr=False)
    compute: Callable[[Results], Any] = field(repr=False)  # reads the result where the task is finished
    seconds: Callable[[], float] = field(repr=False)
    independent: bool = False  # whether it needs no results of other tasks, but perhaps those that `reads` names
    reads: tuple[Key, ...] = ()

    @classmethod
    def of_table(
        cls,
        name: Key,
        title: str,
        samples: int,
        table: CachedTable,
        make: Callable[[Results], pd.DataFrame],
        seconds: Callable[[], float],
        independent: bool = False,
        reads: tuple[Key, ...] = (),
    ) -> "ComputeTask":
        """Make a task whose result is a cached table."""

        def compute(results: Results) -> pd.DataFrame:
            return table.get(lambda: make(results))

        return cls(name, title, samples, table.exists, compute, seconds, independent, reads)

    @property
    def key(self) -> Key:
        """Name of the result."""
        return self.name

    @property
    def needs(self) -> tuple[Key, ...] | None:
        """Return the results that it reads, where they are known."""
        return self.reads if self.independent else None

    def missing(self) -> int:
        """Return all samples, or none."""
        return 0 if self.finished() else self.samples

    def cost(self) -> TaskCost:
        """Estimate the seconds of the whole task."""
        return TaskCost(self.seconds() if self.missing() else 0.0)

    def run(self, results: Results, progress: Progress) -> Any:
        """Compute the result, or read it."""
        progress.start(self.title, self.samples, self.samples - self.missing())
        try:
            return self.compute(results)
        finally:
            progress.finish()
