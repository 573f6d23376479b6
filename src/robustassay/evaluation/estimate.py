"""Estimates the time, the memory and the queries of an evaluation before its first wave."""

import time
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from robustassay.attacks.attack import Attack
from robustassay.evaluation.prepare import PreparedEvaluation
from robustassay.target import GradientAccess, TargetModel
from robustassay.threat import Norm, Untargeted

TIMED: Final = 16
"""Images whose passes are timed."""

COPIES: Final = 12
"""Copies of the images of a wave that an attack and its ledger keep, roughly."""


@final
@dataclass(frozen=True)
class Estimate:
    """What an evaluation takes at most; None where nothing is known."""

    seconds: float | None
    memory_bytes: int | None
    queries: int | None = None  # of a service

    def __str__(self) -> str:
        if self.queries is not None:
            return f"up to about {self.queries:,} queries"
        memory = "" if self.memory_bytes is None else f", about {self.memory_bytes / 2**30:.1f} GiB of memory"
        if self.seconds is None:
            return f"no estimate of the time{memory}"
        return f"up to about {_duration(self.seconds)}, less where attacks succeed early{memory}"


def estimate(prepared: PreparedEvaluation, missing: int) -> Estimate:
    """Time a few passes of the model, and multiply them by what the attacks plan for the missing samples."""
    attacks = list(prepared.attacks.values())
    if prepared.target.is_remote:
        budget = prepared.search.query_budget
        planned = [budget or attack.planned_passes(prepared.threat.norm) for attack in attacks]
        return Estimate(None, None, missing * sum(one or 0 for one in planned))
    times = _pass_times(prepared)
    seconds = [_seconds(attack, prepared.threat.norm, times, prepared.search.query_budget) for attack in attacks]
    known = [one for one in seconds if one is not None]
    workers = prepared.backend.workers
    total = missing * sum(known) / max(1, workers) if len(known) == len(seconds) else None
    return Estimate(total, _memory(prepared))


def _pass_times(prepared: PreparedEvaluation) -> tuple[float, float]:
    """Return the seconds per image of a forward pass and of a gradient."""
    target, dataset = prepared.target, prepared.dataset
    x = dataset.images(slice(0, min(TIMED, len(dataset)))).to(target.device)
    goal = Untargeted(dataset.labels[: len(x)].to(target.device))
    gradient = (lambda: target.gradient(x, lambda logits, _: logits[:, 0], goal)) if target.gives_gradients else None
    forward = _timed(lambda: target.logits(x), target)
    return forward / len(x), (forward if gradient is None else _timed(gradient, target)) / len(x)


def _timed(work: Any, target: TargetModel) -> float:
    work()  # the first call chooses kernels
    started = time.perf_counter()
    work()
    if target.device.type == "cuda":
        torch.cuda.synchronize(target.device)
    return time.perf_counter() - started


def _seconds(attack: Attack[Any], norm: Norm, times: tuple[float, float], budget: int | None) -> float | None:
    passes = attack.planned_passes(norm)
    if passes is None:
        return None
    by_gradient = issubclass(attack.access, GradientAccess)
    return times[by_gradient] * min(passes, passes if budget is None else budget)


def _memory(prepared: PreparedEvaluation) -> int | None:
    """Return what this process has used so far, with the passes that were timed, and the images of a wave."""
    device, images = prepared.target.device, prepared.dataset.images(slice(0, 1))
    wave = COPIES * min(prepared.wave_size, len(prepared.dataset)) * images.nbytes
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) + wave
    try:
        import resource
        import sys
    except ImportError:  # not on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit + wave


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1, round(seconds))} s"
