"""A Ray cluster as the workers of a run: an extra, `pip install robustassay[cluster]`."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, final

import torch

from robustassay.errors import BadRequest, ModelFailed
from robustassay.evaluation.backends import DEATHS, Done, Share, Workload, ship, unpack
from robustassay.evaluation.outcome import Outcome
from robustassay.evaluation.progress import StopRequest
from robustassay.memory import keep_freed_memory

HERE: Final = "local"
"""The address that starts a cluster on this machine, for this run."""


@final
@dataclass(frozen=True)
class RayBackend:
    """All CPUs, or all GPUs, of a Ray cluster; assay must be installed on its nodes."""

    address: str

    @property
    def workers(self) -> int:
        """How many work at the same time."""
        ray, gpus = _connect(self.address), torch.cuda.is_available()
        return max(1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1)))

    def work(self, workload: Workload, shares: Iterator[Share], stop: StopRequest) -> Iterator[Done]:
        """Do all shares; Ray sends the model to each node once, and tries again where a worker dies."""
        ray = _connect(self.address)
        on_gpu = workload.network.device.type == "cuda"
        task = ray.remote(num_cpus=1, num_gpus=1 if on_gpu else 0, max_retries=DEATHS)(_serve)
        shipped, flying, limit = ray.put(ship(workload)), dict[Any, Share](), 2 * self.workers
        more: Share | None = next(shares, None)
        while flying or (more and not stop.asked):
            while more and len(flying) < limit and not stop.asked:
                flying[task.remote(shipped, more)] = more
                more = next(shares, None)
            (ready,), _ = ray.wait([*flying], num_returns=1)
            try:
                outcome = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except ray.exceptions.RayError as error:
                raise ModelFailed(f"The cluster lost a worker {DEATHS + 1} times: {error}") from error
            yield flying.pop(ready), outcome


def _serve(shipped: bytes, share: Share) -> Outcome:
    return _unpack_once(shipped).do(share, lambda ledger: None)


@lru_cache(maxsize=1)
def _unpack_once(shipped: bytes) -> Workload:
    torch.set_num_threads(1)
    keep_freed_memory()
    return unpack(shipped)


def _connect(address: str) -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise BadRequest("--ray needs Ray: pip install 'robustassay[cluster]'.") from None
    if not ray.is_initialized():
        where = None if address == HERE else address
        try:
            ray.init(where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            raise BadRequest(f"No Ray cluster answers at {address} ({error}): name its head, or {HERE}.") from error
    return ray
