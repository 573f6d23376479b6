"""Attacks waves of a run, and isolates the samples on which the model itself fails.

A sample's record depends neither on its wave nor on the process that attacked it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import torch

from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.errors import ModelFailed
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.evaluation.wave_result import WaveResult
from robustassay.records import SCHEMA
from robustassay.rng import seeded
from robustassay.target import Ledger, StartImages, TargetModel, check_supports
from robustassay.target.batching import LANES
from robustassay.threat import ThreatModel

MIN_WAVE: Final = 8
"""Samples in the smallest wave: fewer would leave a model call partly empty."""

EFFICIENT_WAVE: Final = 32
"""Waves are cut below this size only to give every worker one: smaller waves take longer per sample."""

Rows = list[int]
"""Rows of the dataset."""

OnStep = Callable[[Ledger], None]


@final
@dataclass(frozen=True)
class WaveRunner:
    """Everything that is needed to attack any samples of a run; it is sent to other processes whole."""

    target: TargetModel
    attack: Attack[Any]
    threat: ThreatModel
    dataset: Dataset
    seed: int
    query_budget: int | None

    def run(self, rows: Rows, on_step: OnStep) -> WaveResult:
        """Attack these rows as one wave; where the model fails, find the samples it fails on."""
        try:
            return self._attack(rows, on_step)
        except torch.OutOfMemoryError as error:  # outside the model, which reduces its batches by itself
            if len(rows) == 1:
                raise ModelFailed("There is not enough memory to attack even one sample: free some.") from error
            return self._run_halves(rows)
        except ModelFailed as error:
            # A query to a service costs money, and no sample is the cause of a lack of memory.
            if self.target.is_remote or isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
            return self.on(self.target.device)._isolate_failing_samples(rows, error)

    def _isolate_failing_samples(self, rows: Rows, error: ModelFailed) -> WaveResult:
        """Bisect a wave on which the model failed; a single sample is recorded with the error.

        The model must still answer the first images of the data; else it is broken, and the run ends.
        """
        if len(rows) > 1:
            return self._run_halves(rows)
        first_images = self.dataset.images(slice(0, min(LANES, len(self.dataset)))).to(self.target.device)
        exact = self.target.exact
        try:
            exact.logits(first_images)
            exact.check()
        except ModelFailed:
            raise error from None
        no_images = self.dataset.images(rows)[:0]
        return WaveResult(SCHEMA.empty_table(), no_images, {self.dataset.ids[rows[0]]: str(error)})

    def _run_halves(self, rows: Rows) -> WaveResult:
        half = len(rows) // 2
        return self.run(rows[:half], ignore_step).followed_by(self.run(rows[half:], ignore_step))

    def _attack(self, rows: Rows, on_step: OnStep) -> WaveResult:
        target, whole = self.target, self.dataset.whole
        target.discard_unchecked_outputs()  # of an attempt that an error ended
        wave = Wave(
            ids=[self.dataset.ids[row] for row in rows],
            x0=target.quantise(self.dataset.images(rows).to(target.device)),
            labels=self.dataset.labels[rows].to(target.device),
            start_images=StartImages(whole.labels, whole.images),
        )
        check_supports(target, self.attack)
        with seeded(f"{self.seed}/{wave.ids[0]}", target.device):
            return WaveResult(*run_wave(target, self.attack, self.threat, wave, self.seed, self.query_budget, on_step))

    def on(self, device: torch.device) -> "WaveRunner":
        """Return the same on another device."""
        return replace(self, target=self.target.on(device))


def plan_waves(missing: Sequence[int], wave_size: int, workers: int, random: bool) -> Iterator[Rows]:
    """Cut rows into waves, smaller towards the end, so that no worker is left with a large last one.

    Of a random model, all samples of a wave share one stream of random numbers, so all waves have one size.
    """
    least = max(MIN_WAVE, min(EFFICIENT_WAVE, math.ceil(len(missing) / workers)))
    start = 0
    while start < len(missing):
        fair = math.ceil((len(missing) - start) / (2 * workers))
        size = wave_size if workers == 1 or random else min(wave_size, max(least, fair))
        yield [*missing[start : start + size]]
        start += size


def ignore_step(ledger: Ledger) -> None:
    """Do nothing at a step of an attack."""
