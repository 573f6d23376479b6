"""Who does the waves of a run: this process, several on this machine, or a cluster.

A sample's record does not depend on its wave, so it does not depend on who did it. Workers hand their records back and
the process that was asked writes them all, so a run needs no shared disk and a dead worker leaves nothing half written.
"""

import math
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, Final, Protocol, final

import torch

from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.errors import BadRequest, ModelFailed
from robustassay.evaluation.engine import Wave, run_wave
from robustassay.evaluation.outcome import Outcome
from robustassay.evaluation.progress import StopRequest
from robustassay.memory import keep_freed_memory
from robustassay.records import SCHEMA
from robustassay.remote import as_sent, over_the_wire
from robustassay.rng import seeded
from robustassay.target import Ledger, LocalModel, StartImages, TargetModel
from robustassay.target.batching import LANES
from robustassay.threat import ThreatModel

LEAST: Final = 8
"""Samples in the smallest wave: less would leave the lanes of a call empty."""

FULL: Final = 32
"""Samples below which a wave is only cut to give every worker one: it takes much longer a sample."""

DEATHS: Final = 5
"""Workers that may die before a run is given up: a few may be the machine's fault, more are the model's."""

Share = list[int]
Done = tuple[Share, Outcome]


@final
@dataclass(frozen=True)
class Workload:
    """What must be known to attack any samples of a run."""

    network: TargetModel
    attack: Attack[Any]
    threat: ThreatModel
    dataset: Dataset
    seed: int
    query_budget: int | None

    def do(self, rows: Share, on_step: Callable[[Ledger], None]) -> Outcome:
        """Attack these rows of the dataset as one wave; where the model fails, find the samples it fails on."""
        try:
            return self._attack(rows, on_step)
        except torch.OutOfMemoryError as error:  # outside the model, which takes smaller batches by itself
            if len(rows) == 1:
                raise ModelFailed("There is no memory left to attack even one sample: free some.") from error
        except ModelFailed as error:
            # To ask a service again costs money, and a lack of memory is no sample's fault.
            if type(self.network) is not LocalModel or isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
            afresh = self.on(self.network.device)  # without what the failed calls have left behind
            if len(rows) == 1:
                return afresh._blame(rows[0], error)
            return afresh._by_halves(rows)
        return self._by_halves(rows)

    def _by_halves(self, rows: Share) -> Outcome:
        half = len(rows) // 2
        return self.do(rows[:half], _unseen).and_then(self.do(rows[half:], _unseen))

    def _blame(self, row: int, error: ModelFailed) -> Outcome:
        """Record that the model fails on a sample, if it still answers those it was first shown; else it is broken."""
        known = self.dataset.images(slice(0, min(LANES, len(self.dataset)))).to(self.network.device)
        exact = self.network.exact
        try:
            exact.logits(known)
            exact.check()
        except ModelFailed:
            raise error from None
        none = self.dataset.images([row])[:0]
        return Outcome(SCHEMA.empty_table(), none, {self.dataset.ids[row]: str(error)})

    def _attack(self, rows: Share, on_step: Callable[[Ledger], None]) -> Outcome:
        network, whole = self.network, self.dataset.whole
        wave = Wave(
            ids=[self.dataset.ids[row] for row in rows],
            x0=as_sent(network, self.dataset.images(rows).to(network.device)),
            labels=self.dataset.labels[rows].to(network.device),
            start_images=StartImages(whole.labels, whole.images),
        )
        wired = over_the_wire(network, self.attack)
        with seeded(f"{self.seed}/{wave.ids[0]}", network.device):
            return Outcome(*run_wave(network, wired, self.threat, wave, self.seed, self.query_budget, on_step))

    def on(self, device: torch.device) -> "Workload":
        """Return the same workload on another device."""
        return replace(self, network=self.network.on(device))

    def shares(self, missing: Sequence[int], wave_size: int, workers: int) -> Iterator[Share]:
        """Cut the samples into waves, smaller towards the end, so that no worker is left with a large last one.

        Of a model that draws random numbers a wave is the unit of chance, and always of the same size.
        """
        least = max(LEAST, min(FULL, math.ceil(len(missing) / workers)))
        start = 0
        while start < len(missing):
            fair = math.ceil((len(missing) - start) / (2 * workers))
            size = wave_size if workers == 1 or self.network.random else min(wave_size, max(least, fair))
            yield [*missing[start : start + size]]
            start += size


class Backend(Protocol):
    """Some workers."""

    @property
    def workers(self) -> int:
        """How many work at the same time."""
        ...

    def work(self, workload: Workload, shares: Iterator[Share], stop: StopRequest) -> Iterator[Done]:
        """Do all shares, in any order, or those in flight when a stop is asked for."""
        ...


@final
@dataclass(frozen=True)
class ProcessBackend:
    """Several processes on this machine, each with its part of the cores, or a GPU of its own in turn."""

    workers: int

    def work(self, workload: Workload, shares: Iterator[Share], stop: StopRequest) -> Iterator[Done]:
        """Do all shares; what a dying process had in hand is given to another."""
        shipped, todo, deaths = ship(workload), deque(shares), 0
        while todo and not stop.asked:
            flying: dict[Future[Outcome], Share] = {}
            context = get_context("spawn")
            order = (shipped, self.workers, context.Value("i", 0))
            with ProcessPoolExecutor(self.workers, context, _enlist, order) as pool:
                try:
                    while flying or (todo and not stop.asked):
                        while todo and len(flying) < self.workers and not stop.asked:
                            share = todo.popleft()
                            flying[pool.submit(_serve, share)] = share
                        for future in wait(flying, return_when=FIRST_COMPLETED).done:
                            outcome = future.result()
                            yield flying.pop(future), outcome
                except BrokenProcessPool:
                    deaths += 1
                    todo.extendleft(flying.values())
                    if deaths > DEATHS:
                        raise _given_up() from None


def _given_up() -> ModelFailed:
    return ModelFailed(
        f"Workers died {DEATHS + 1} times, most likely for lack of memory: use fewer of them or a smaller batch size; "
        "finished samples are safe and the same command resumes."
    )


def ship(workload: Workload) -> bytes:
    """Pack a workload for another process, whatever functions its model and data are made of."""
    import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps(workload)
    except Exception as error:
        raise BadRequest(f"This model cannot be sent to another process ({error}): run it without workers.") from error
    return packed


def unpack(shipped: bytes) -> Workload:
    """Unpack what `ship` has packed."""
    workload: Workload = pickle.loads(shipped)
    return workload


_duty: Workload | None = None


def _enlist(shipped: bytes, workers: int, counter: Any) -> None:
    """Make this process ready: an interrupt is the leader's to handle, and cores are shared."""
    global _duty
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // workers))
    with counter.get_lock():
        index, counter.value = counter.value, counter.value + 1
    workload = unpack(shipped)
    if workload.network.device.type == "cuda":
        workload = workload.on(torch.device("cuda", index % torch.cuda.device_count()))
    _duty = workload


def _serve(share: Share) -> Outcome:
    assert _duty is not None
    return _duty.do(share, _unseen)


def _unseen(ledger: Ledger) -> None:
    """Watch a wave that nobody watches."""
