"""The result of one wave, and the limit on samples that the model fails on.

A sample on which the model raises, or returns NaN, counts neither as robust nor as broken. It has no record, so no rate
counts it. Its error is saved beside the records and reported with every result. It is tried again when the run is
resumed. The run ends where the model fails on more than a few samples, or on images that it classified before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

import pyarrow as pa
import torch
from torch import Tensor

from robustassay.errors import ModelFailed

MAX_FAILED: Final = 0.1
"""Fraction of the samples, at least one sample, that a model may fail on before the run ends."""


@final
@dataclass(frozen=True, eq=False)
class WaveResult:
    """Records and adversarial images, in one order, and the errors of the samples that have none."""

    records: pa.Table
    x_adv: Tensor
    failures: Mapping[str, str] = field(default_factory=dict)

    def followed_by(self, other: "WaveResult") -> "WaveResult":
        """Append another result to this one."""
        return WaveResult(
            pa.concat_tables([self.records, other.records]),
            torch.cat((self.x_adv, other.x_adv)),
            {**self.failures, **other.failures},
        )


class FailureLimit:
    """Counts the samples that the model fails on; raises when there are too many."""

    def __init__(self, samples: int) -> None:
        self._left = max(1, int(MAX_FAILED * samples))

    def count(self, failures: Mapping[str, str]) -> None:
        """Count these failures."""
        self._left -= len(failures)
        if self._left < 0:
            sample, why = next(iter(failures.items()))
            raise ModelFailed(
                f"The model fails on more than one sample in {round(1 / MAX_FAILED)}, such as {sample!r} "
                f"({why.rstrip('.')}): mend the model, or leave such samples out of the data."
            )
