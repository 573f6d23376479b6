"""The options of evaluate() that most callers leave alone, in two groups: search and execution."""

import operator
from dataclasses import dataclass
from typing import Any, Final, Literal, final, get_args

import torch

from robustassay.data import Dataset
from robustassay.errors import BadRequest

Precision = Literal["fast", "exact"]
"""Whether attacks search on a faster surrogate of the model, where there is one, or on the model itself."""

SELF_TEST_SAMPLES: Final = 8
"""Samples of a self-test where no number is given."""

WAVE_SIZE: Final = {"cpu": 128, "cuda": 2048}
WAVE_VALUES: Final = {"cpu": 1 << 22, "cuda": 1 << 24}
MIN_WAVE_SIZE: Final = 16


@final
@dataclass(frozen=True)
class Search:
    """How samples are attacked.

    Args:
        precision: "fast" searches on a faster surrogate of the model where there is one; "exact" on the model itself.
            Successes are verified on the model itself in either case.
        eot: draws per gradient, where the model draws random numbers; by default 20, 40 or 80, the fewest that make
            the direction of the gradient steady.
        query_budget: maximum number of images an attack may send per sample.
        smallest_eps: search the smallest radius at which the attack succeeds, per sample, starting from the threat's;
            minimum-norm attacks do so anyway.
        adaptive: "auto" diagnoses the model first and adds the attacks that the diagnosis asks for.
        confirm: run AutoAttack, or the attack named here, on the samples that are left in doubt, and only on them.
        despite_flags: evaluate even a model on which the attack must fail, such as one that returns probabilities.
        self_test: number of samples on which the attack must find a planted adversarial example afterwards, and of
            unbroken samples that are attacked through other gradients (cross-check); 0 for neither.

    """

    precision: Precision = "fast"
    eot: int | None = None
    query_budget: int | None = None
    smallest_eps: bool = False
    adaptive: str | None = None
    confirm: bool | str = False
    despite_flags: bool = False
    self_test: int | None = None

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise BadRequest(f"precision must be fast or exact, not {self.precision!r}.")
        _check_positive("eot", self.eot)
        _check_positive("query_budget", self.query_budget)
        if self.self_test is not None and whole("self_test", self.self_test) < 0:
            raise BadRequest(f"self_test must be a number of samples, or 0 for none, not {self.self_test}.")

    @property
    def self_test_samples(self) -> int:
        """The number of samples of the self-test."""
        return SELF_TEST_SAMPLES if self.self_test is None else self.self_test


@final
@dataclass(frozen=True)
class Execution:
    """How the work is done; nothing here changes results.

    Args:
        batch_size: images per model call.
        wave_size: samples that are attacked, and saved, together.
        workers: processes on this machine.
        ray: address of a Ray cluster that does the work instead, or "local".
        shard: (i, n) does the i-th of n parts of the samples; the parts share one output folder.

    """

    batch_size: int | None = None
    wave_size: int | None = None
    workers: int = 1
    ray: str | None = None
    shard: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        _check_positive("batch_size", self.batch_size)
        _check_positive("wave_size", self.wave_size)
        if whole("workers", self.workers) < 1 or (self.ray is not None and self.workers > 1):
            raise BadRequest("workers must be at least 1; with ray the cluster says how many there are.")
        part, parts = self.shard
        if not 1 <= part <= parts:
            raise BadRequest(f"A shard is written i/n with 1 <= i <= n, such as 1/4, not {part}/{parts}.")


def default_wave_size(device: torch.device, dataset: Dataset) -> int:
    """Return the default wave size: smaller for large images, of which an attack keeps many copies."""
    values = dataset.images(slice(0, 1)).numel()
    return min(WAVE_SIZE.get(device.type, 128), max(MIN_WAVE_SIZE, WAVE_VALUES.get(device.type, 1 << 22) // values))


def whole(name: str, value: Any) -> int:
    """Return a whole number, of whatever integer type it is."""
    try:
        return operator.index(value)
    except TypeError:
        raise BadRequest(f"{name} must be a whole number, not {value!r}.") from None


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and whole(name, value) < 1:
        raise BadRequest(f"{name} must be at least 1, not {value}.")
