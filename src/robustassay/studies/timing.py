"""How long a model takes per image here, and how to say so."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, final

import torch
from torch import Tensor

from robustassay import models
from robustassay.data import Dataset
from robustassay.data.photo_frames import photo_reader_of
from robustassay.evaluation.model_ref import ModelRef
from robustassay.studies.photographs import as_seen_by
from robustassay.target import LocalModel, call_module
from robustassay.threat import Untargeted

EOT_DRAWS: Final = 20
"""Passes that a gradient of a random model is averaged over."""

EMBEDDED_KEPT: Final = 64
"""Models of the zoo that stay loaded: they are small, and studies ask for them again and again."""

_TIMED: Final = 16
"""Images whose passes are timed before a study starts."""


@final
@dataclass(frozen=True)
class Passes:
    """Planned passes per sample; samples that an attack breaks early take fewer."""

    forwards: int = 0
    gradients: int = 0
    source_gradients: int = 0  # of the substitute model of a transfer attack


@final
@dataclass(frozen=True)
class PassTimes:
    """Seconds per image of a forward pass and of a gradient."""

    forward: float
    gradient: float


@lru_cache(maxsize=6)
def load_once(model: str) -> ModelRef:
    """Load a model once for its timing and all its tasks, which run one after the other.

    Embedded models are small, so all of them stay loaded; what was found out about them, which may hold much memory of
    a GPU, is kept for few models only.
    """
    return replace(_load_embedded(model), inspections={}) if model in models.names() else ModelRef.of(model)


@lru_cache(maxsize=EMBEDDED_KEPT)
def _load_embedded(model: str) -> ModelRef:
    return ModelRef.of(model)


@lru_cache(maxsize=64)
def pass_times(model: str, dataset: Dataset, device: torch.device, eot: int = EOT_DRAWS) -> PassTimes:
    """Time a few passes of a model, once."""
    dataset = as_seen_by(model, dataset)
    rows = slice(0, min(_timed(dataset, device), len(dataset)))
    x, goal = dataset.images(rows).to(device), Untargeted(dataset.labels[rows].to(device))
    module = load_once(model).module.to(device)
    first, second = call_module(module, x), call_module(module, x)
    draws = 1 if torch.allclose(first, second, rtol=1e-3, atol=1e-3) else eot
    network = LocalModel(module, first.shape[1], device, draws=draws)
    queries = (network.logits, lambda x: network.gradient(x, lambda logits, _: logits[:, 0], goal))
    return PassTimes(*(_time(query, x) / len(x) for query in queries))


def format_duration(seconds: float) -> str:
    """Write a time in the largest unit that fits."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def time_left(seconds: float) -> str:
    """Say how long the rest of a study takes."""
    if math.isnan(seconds):
        return "no estimate of their time"
    if not seconds:
        return "all of them finished"
    return f"about {format_duration(seconds)} at most here, less where attacks succeed early"


def _timed(dataset: Dataset, device: torch.device) -> int:
    """Return how many images to time: a GPU is as quick with few as with one, and large images take longer."""
    return 4 * _TIMED if device.type == "cuda" else _TIMED if photo_reader_of(dataset) is None else _TIMED // 2


def _time(query: Callable[[Tensor], object], x: Tensor) -> float:
    """Time a pass; on a GPU the second one, as the first chooses and loads kernels."""
    on_gpu = x.device.type == "cuda"
    for _ in range(1 + on_gpu):
        start = time.perf_counter()
        query(x)
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return seconds
