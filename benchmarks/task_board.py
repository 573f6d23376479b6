"""Which task each of several processes takes next: earlier stages first, and few models per process.

A process loads and inspects each model it meets, and keeps few of them, so it stays with one as long as there is work
on it. Tasks that read the results of others wait for these.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from robustassay.studies.runs import RunTask
from robustassay.studies.task import Key, Task

WAITING, RUNNING, FINISHED, FAILED = range(4)
NOTHING: Final = -1
CRAFTED: Final = "crafted by "
ATTEMPTS: Final = 2
"""A failure may be one of memory that other processes held; the second one is final."""


@final
@dataclass(frozen=True)
class Order:
    """What is known of the tasks before any runs: stage, model and needed tasks of each, by number."""

    stages: tuple[int, ...]
    models: tuple[str, ...]  # or what else one process should do alone, such as crafted images
    needs: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> "Order":
        """Read the stages off the order of a plan: a new one starts where a model comes back after another."""
        models = tuple(_crafted(task) or _model(task.key) for task in tasks)
        numbers = {task.key: number for number, task in enumerate(tasks)}
        needs = tuple(tuple(numbers[key] for key in task.needs or ()) for task in tasks)
        stages: list[int] = []
        seen: set[str] = set()
        for before, model in itertools.pairwise(("", *models)):
            new = model != before and model in seen
            seen = {model} if new else seen | {model}
            stages.append((stages[-1] if stages else 0) + new)
        return cls(tuple(stages), models, needs)


def runnable(tasks: Sequence[Task]) -> list[Task]:
    """List the tasks that need no results, or only those of others in the list."""
    by_key: Mapping[Key, Task] = {task.key: task for task in tasks}
    known: dict[Key, bool] = {}

    def can_run(key: Key) -> bool:
        if key not in known:
            known[key] = False  # a task that needs itself never runs
            needs = by_key[key].needs if key in by_key else None
            known[key] = needs is not None and all(can_run(one) for one in needs)
        return known[key]

    return [task for task in tasks if can_run(task.key)]


@final
@dataclass(frozen=True, eq=False)
class Board:
    """The states of all tasks, shared by all processes."""

    order: Order
    states: Any = field(repr=False)  # arrays of shared memory
    failures: Any = field(repr=False)
    running: Any = field(repr=False)  # the task of each process, or the last one
    lock: Any = field(repr=False)
    had: set[str] = field(default_factory=set)  # the models that this process has been at; every process has its own

    @classmethod
    def of(cls, context: Any, tasks: Sequence[Task], processes: int) -> "Board":
        """Start with what is finished already."""
        states = [WAITING if task.missing() else FINISHED for task in tasks]
        numbers = (states, [0] * len(tasks), [NOTHING] * processes)
        shared, failures, running = (context.Array("i", each, lock=False) for each in numbers)
        return cls(Order.of(tasks), shared, failures, running, context.Lock())

    def claim(self, process: int) -> int | None:
        """Take a task; NOTHING where those left wait for others, None where nothing is left to do."""
        with self.lock:
            waiting = [at for at, state in enumerate(self.states) if state == WAITING]
            ready = [at for at in waiting if all(self.states[one] == FINISHED for one in self.order.needs[at])]
            at = self._choose(process, ready)
            if at is None:
                return NOTHING if waiting and RUNNING in list(self.states) else None
            self.had.add(self.order.models[at])
            self.states[at], self.running[process] = RUNNING, at
            return at

    def _choose(self, process: int, ready: Sequence[int]) -> int | None:
        """Stay with a model, or take one that no other process is at, a known one first; of the earliest stage."""
        models, stages = self.order.models, self.order.stages
        own = self.running[process]
        others = {models[at] for one, at in enumerate(self.running) if at != NOTHING and one != process}
        for stage in sorted({stages[at] for at in ready}):
            here = [at for at in ready if stages[at] == stage]
            stay = (at for at in here if own != NOTHING and models[at] == models[own])
            free = [at for at in here if models[at] not in others]
            known = (at for at in free if models[at] in self.had)
            shared = (at for at in here if not models[at].startswith(CRAFTED))
            found = next(itertools.chain(stay, known, free, shared), None)
            if found is not None:
                return found
        return None

    def finish(self, at: int) -> None:
        """Note that a task is finished."""
        with self.lock:
            self.states[at] = FINISHED

    def fail(self, at: int) -> None:
        """Note that a task failed; it is tried once more."""
        with self.lock:
            self.failures[at] += 1
            self.states[at] = WAITING if self.failures[at] < ATTEMPTS else FAILED

    def release(self, process: int) -> None:
        """Note that a process has ended, perhaps within a task."""
        with self.lock:
            at, self.running[process] = self.running[process], NOTHING
            if at != NOTHING and self.states[at] == RUNNING:
                self.states[at] = FAILED

    def needed(self, at: int) -> tuple[int, ...]:
        """Return the tasks whose results a task reads."""
        return self.order.needs[at]


def _crafted(task: Task) -> str:
    """Name the crafted images that several models are shown: one process crafts them and keeps them."""
    run = task.attack_run if isinstance(task, RunTask) else None
    shared = run is not None and run.source is not None and not run.smallest_eps
    return f"{CRAFTED}{run.attack} {run.threat}" if run and shared else ""


def _model(key: Key) -> str:
    """Return what a task is about: the model of a run, or that of a measure of a model."""
    return key[1] if key[0] in ("clever", "transfer") else key[0]
