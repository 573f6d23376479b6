"""Estimates the time, the memory and the queries of an evaluation before its first wave."""

import math
import time
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from robustassay.attacks.attack import Attack
from robustassay.evaluation.planting import planting_passes
from robustassay.evaluation.prepare import PreparedEvaluation
from robustassay.target import GradientAccess
from robustassay.target.batching import LANES
from robustassay.threat import Ball, Untargeted
from robustassay.threat.losses import own_loss

TIMED: Final = 16
"""Images of the pilot."""

PILOT_STEPS: Final = 3
PILOT_STEP: Final = 0.5
"""Gradient steps of the pilot, and their length as a part of eps."""

EARLY: Final = 5
"""Passes of a sample that an attack breaks, roughly; also of a planted example."""

EARLY_QUERIES: Final = 0.1
"""The same for an attack without gradients, as a part of what it plans."""

COPIES: Final = 12
"""Copies of the images of a wave that an attack and its ledger keep, roughly."""


@final
@dataclass(frozen=True)
class Estimate:
    """What an evaluation takes, roughly; None where nothing is known."""

    seconds: float | None
    memory_bytes: int | None
    queries: int | None = None  # of a service, at most

    def after(self, seconds: float) -> "Estimate":
        """Return the same with the seconds that have passed already."""
        return Estimate(None if self.seconds is None else self.seconds + seconds, self.memory_bytes, self.queries)

    def __str__(self) -> str:
        if self.queries is not None:
            return f"up to about {self.queries:,} queries"
        memory = "" if self.memory_bytes is None else f", about {self.memory_bytes / 2**30:.1f} GiB of memory"
        if self.seconds is None:
            return f"no estimate of the time{memory}"
        return f"about {_duration(self.seconds)} in all{memory}"


@final
@dataclass(frozen=True)
class _Pilot:
    """Seconds per image of a forward pass and of a gradient, and the part of the images that a short attack leaves."""

    forward: float
    gradient: float
    unbroken: float


def estimate(prepared: PreparedEvaluation, missing: int) -> Estimate:
    """Attack a few images for a few steps; scale to what the attacks and the self-test do with the missing samples."""
    attacks = list(prepared.attacks.values())
    if prepared.target.is_remote:
        budget = prepared.search.query_budget
        planned = [budget or attack.planned_passes(prepared.threat.norm) for attack in attacks]
        return Estimate(None, None, missing * sum(one or 0 for one in planned))
    pilot = _run_pilot(prepared)
    seconds = [_seconds(prepared, attack, pilot, missing) for attack in attacks]
    known = [one for one in seconds if one is not None]
    total = sum(known) / max(1, prepared.backend.workers) + _self_test_seconds(prepared, pilot)
    return Estimate(total if len(known) == len(seconds) else None, _memory(prepared))


def _run_pilot(prepared: PreparedEvaluation) -> _Pilot:
    """Time passes of the model in a short attack on the first images."""
    target, dataset, norm = prepared.target, prepared.dataset, prepared.threat.norm
    x = x0 = dataset.images(slice(0, min(TIMED, len(dataset)))).to(target.device)
    goal = Untargeted(dataset.labels[: len(x)].to(target.device))
    ball = Ball(norm, x0, torch.full((len(x0),), norm.eps, device=x0.device))
    target.logits(x0)  # the first call chooses kernels
    broken, started = goal.reached(target.logits(x0)), _now(target.device)
    broken |= goal.reached(target.logits(x0))
    forward = (_now(target.device) - started) / len(x0)
    if not target.gives_gradients:
        return _Pilot(forward, forward, float((~broken).double().mean()))
    target.gradient(x, own_loss, goal)
    started = _now(target.device)
    for _ in range(PILOT_STEPS):
        gradient, logits = target.gradient(x, own_loss, goal)
        broken |= goal.reached(logits)
        x = ball.step(x, gradient, PILOT_STEP * ball.eps)
    seconds = (_now(target.device) - started) / PILOT_STEPS / len(x0)
    broken |= goal.reached(target.logits(x))
    return _Pilot(forward, seconds, float((~broken).double().mean()))


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _seconds(prepared: PreparedEvaluation, attack: Attack[Any], pilot: _Pilot, missing: int) -> float | None:
    """Return the seconds of one attack: broken samples leave early, the others take what the attack plans."""
    planned = attack.planned_passes(prepared.threat.norm)
    if planned is None:
        return None
    to_the_end = attack.seeks_minimum or prepared.threat.target is not None
    unbroken = 1.0 if to_the_end else pilot.unbroken
    waves = math.ceil(missing / prepared.wave_size)
    budget = prepared.search.query_budget or math.inf
    total = 0.0
    for calls in attack.usual_calls(prepared.threat.norm, unbroken * missing / max(1, waves)):
        seconds = pilot.gradient if calls.by_gradient else pilot.forward
        total += waves * min(calls.count, budget) * _images(calls.rows) * seconds
    early = EARLY * pilot.gradient
    if not issubclass(attack.access, GradientAccess):
        early = EARLY_QUERIES * min(planned, budget) * pilot.forward
    return total + missing * ((1 - unbroken) * early + 2 * pilot.forward)


def _images(rows: float) -> float:
    """Return how many images a call with these rows holds; few rows are padded to whole lanes."""
    return LANES * min(rows, 1.0) if rows < 1 else LANES * math.ceil(rows / LANES)


def _self_test_seconds(prepared: PreparedEvaluation, pilot: _Pilot) -> float:
    by_gradient = {issubclass(attack.access, GradientAccess) for attack in prepared.attacks.values()}
    samples = min(prepared.search.self_test_samples, len(prepared.dataset))
    if prepared.execution.shard[0] > 1:
        return 0.0
    passes = [planting_passes(one) for one in by_gradient]
    planting = sum(forwards * pilot.forward + backwards * pilot.gradient for forwards, backwards in passes)
    return samples * (planting + len(prepared.attacks) * EARLY * pilot.gradient)


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
