"""A Ray cluster as a backend: an extra, `pip install robustassay[cluster]`."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, final

import torch

from robustassay.errors import BadRequest, ModelFailed
from robustassay.evaluation.backends import MAX_WORKER_DEATHS, Watch, pack, unpack
from robustassay.evaluation.wave_result import WaveResult
from robustassay.evaluation.wave_runner import Rows, WaveRunner, ignore_step
from robustassay.interrupt import StopRequest
from robustassay.malloc_settings import keep_freed_memory

LOCAL: Final = "local"
"""The address that starts a cluster on this machine, for this run."""


@final
@dataclass(frozen=True)
class RayBackend:
    """All CPUs, or all GPUs, of a Ray cluster; robustassay must be installed on its nodes."""

    address: str

    @property
    def workers(self) -> int:
        """How many waves run at the same time."""
        ray, gpus = _connect(self.address), torch.cuda.is_available()
        return max(1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1)))

    def run_waves(
        self, runner: WaveRunner, waves: Iterator[Rows], stop: StopRequest, watch: Watch
    ) -> Iterator[WaveResult]:
        """Run all waves; Ray sends the model to each node once, and runs a wave again where a worker dies."""
        ray = _connect(self.address)
        on_gpu = runner.target.device.type == "cuda"
        task = ray.remote(num_cpus=1, num_gpus=1 if on_gpu else 0, max_retries=MAX_WORKER_DEATHS)(_run_in_worker)
        packed, in_flight, limit = ray.put(pack(runner)), set[Any](), 2 * self.workers
        rows: Rows | None = next(waves, None)
        while in_flight or (rows and not stop.asked):
            while rows and len(in_flight) < limit and not stop.asked:
                in_flight.add(task.remote(packed, rows))
                rows = next(waves, None)
            (ready,), _ = ray.wait([*in_flight], num_returns=1)
            in_flight.remove(ready)
            try:
                result: WaveResult = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except ray.exceptions.RayError as error:
                raise ModelFailed(f"The cluster lost a worker {MAX_WORKER_DEATHS + 1} times: {error}") from error
            yield result


def _run_in_worker(packed: bytes, rows: Rows) -> WaveResult:
    return _unpack_once(packed).run(rows, ignore_step)


@lru_cache(maxsize=1)
def _unpack_once(packed: bytes) -> WaveRunner:
    torch.set_num_threads(1)
    keep_freed_memory()
    return unpack(packed)


def _connect(address: str) -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise BadRequest("--ray needs Ray: pip install 'robustassay[cluster]'.") from None
    if not ray.is_initialized():
        where = None if address == LOCAL else address
        try:
            ray.init(where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            raise BadRequest(f"No Ray cluster answers at {address} ({error}): name its head, or {LOCAL}.") from error
    return ray
