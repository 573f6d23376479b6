"""Backends, which run the waves: this process (serial), several processes on this machine, or a Ray cluster.

Workers return their records, and the process that was called writes them all. So a run needs no shared disk, and a
worker that dies leaves nothing half written. Workers end with the process that was called.
"""

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from typing import Any, Final, Protocol, final

import torch

from robustassay.errors import BadRequest, ModelFailed
from robustassay.evaluation.options import Execution
from robustassay.evaluation.parent_death import die_with_parent
from robustassay.evaluation.wave_result import WaveResult
from robustassay.evaluation.wave_runner import OnStep, Rows, WaveRunner, ignore_step
from robustassay.interrupt import StopRequest
from robustassay.malloc_settings import keep_freed_memory
from robustassay.models.from_file import USER_MODULE

MAX_WORKER_DEATHS: Final = 5
"""Workers that may die before the run is stopped: a few may die because of the machine, more because of the model."""

Watch = Callable[[int], OnStep]
"""From the size of a wave to a function that is called at each step of the attack on it."""


class Backend(Protocol):
    """Runs waves, on one or several workers."""

    @property
    def workers(self) -> int:
        """How many waves run at the same time."""
        ...

    def run_waves(
        self, runner: WaveRunner, waves: Iterator[Rows], stop: StopRequest, watch: Watch
    ) -> Iterator[WaveResult]:
        """Run all waves, in any order; after a stop request, only those in flight."""
        ...


def choose_backend(execution: Execution) -> Backend:
    """Return the backend that the options ask for."""
    if execution.ray is not None:
        from robustassay.evaluation.ray_backend import RayBackend

        return RayBackend(execution.ray)
    return ProcessBackend(execution.workers) if execution.workers > 1 else SerialBackend()


@final
@dataclass(frozen=True)
class SerialBackend:
    """This process; the only backend that reports the steps inside a wave."""

    workers: int = 1

    def run_waves(
        self, runner: WaveRunner, waves: Iterator[Rows], stop: StopRequest, watch: Watch
    ) -> Iterator[WaveResult]:
        """Run one wave after the other."""
        for rows in waves:
            yield runner.run(rows, watch(len(rows)))
            if stop.asked:
                return


@final
@dataclass(frozen=True)
class ProcessBackend:
    """Several processes on this machine, each with its part of the cores, or with one GPU."""

    workers: int

    def run_waves(
        self, runner: WaveRunner, waves: Iterator[Rows], stop: StopRequest, watch: Watch
    ) -> Iterator[WaveResult]:
        """Run all waves; those of a process that dies are run again by another."""
        packed, waiting, deaths = pack(runner), deque(waves), 0
        while waiting and not stop.asked:
            in_flight: dict[Future[WaveResult], Rows] = {}
            context, others = get_context("spawn"), {*active_children()}
            arguments = (packed, self.workers, context.Value("i", 0), os.getpid())
            with ProcessPoolExecutor(self.workers, context, _start_worker, arguments) as pool:
                try:
                    while in_flight or (waiting and not stop.asked):
                        while waiting and len(in_flight) < self.workers and not stop.asked:
                            future = pool.submit(_run_in_worker, waiting[0])  # raises if the pool broke meanwhile
                            in_flight[future] = waiting.popleft()
                        for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
                            result = future.result()
                            in_flight.pop(future)
                            yield result
                except BrokenProcessPool:
                    _kill({*active_children()} - others)
                    deaths += 1
                    waiting.extendleft(in_flight.values())
                    if deaths > MAX_WORKER_DEATHS:
                        raise _too_many_deaths() from None


def _kill(workers: Iterable[BaseProcess]) -> None:
    """End the workers of a broken pool; one that started while it broke would never end, and the pool wait for it."""
    for worker in workers:
        worker.kill()


def _too_many_deaths() -> ModelFailed:
    return ModelFailed(
        f"Workers died {MAX_WORKER_DEATHS + 1} times, probably for lack of memory: use fewer of them or a smaller "
        "batch size; finished samples are safe, and the same command resumes the run."
    )


def pack(runner: WaveRunner) -> bytes:
    """Serialise a runner for another process, with the functions and classes of its model and data."""
    import cloudpickle

    for name in [name for name in sys.modules if name.startswith(USER_MODULE)]:
        cloudpickle.register_pickle_by_value(sys.modules[name])  # other processes have not run that file
    try:
        packed: bytes = cloudpickle.dumps(runner)
    except Exception as error:
        raise BadRequest(f"This model cannot be sent to another process ({error}): run it without workers.") from error
    return packed


def unpack(packed: bytes) -> WaveRunner:
    """Return what `pack` has serialised."""
    runner: WaveRunner = pickle.loads(packed)
    return runner


_runner: WaveRunner | None = None
"""The runner of this worker process."""


def _start_worker(packed: bytes, workers: int, counter: Any, leader: int) -> None:
    """Prepare this process: the leader handles interrupts, and workers share the cores or take turns at GPUs."""
    global _runner
    die_with_parent(leader)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    torch.set_num_threads(max(1, _cores() // workers))
    with counter.get_lock():
        index, counter.value = counter.value, counter.value + 1
    runner = unpack(packed)
    device = device_of_worker(runner.target.device, index)
    _runner = runner if device == runner.target.device else runner.on(device)


def device_of_worker(device: torch.device, index: int) -> torch.device:
    """Return the GPU of a worker: workers take turns at all GPUs, unless the user named one."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", index % torch.cuda.device_count())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_in_worker(rows: Rows) -> WaveResult:
    assert _runner is not None
    return _runner.run(rows, ignore_step)
