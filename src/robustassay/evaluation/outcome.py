"""What came of some samples, those included that the model itself failed on.

A sample on which the model raises, or returns NaN, is judged neither robust nor broken: it has no record, so no rate
counts it, and its error is kept beside the records and said with every result. It is tried again when the run is
resumed. A model that fails on more than a few samples, or on those it answered before, ends the run instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

import pyarrow as pa
import torch
from torch import Tensor

from robustassay.errors import ModelFailed

MOST_FAILED: Final = 0.1
"""Part of the samples, but always one, that a model may fail on before the whole run is given up."""


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """The records and adversarial images of samples that were judged, in one order, and the errors of the others."""

    records: pa.Table
    x_adv: Tensor
    failures: Mapping[str, str] = field(default_factory=dict)

    def and_then(self, other: "Outcome") -> "Outcome":
        """Put another outcome behind this one."""
        return Outcome(
            pa.concat_tables([self.records, other.records]),
            torch.cat((self.x_adv, other.x_adv)),
            {**self.failures, **other.failures},
        )


class Tolerance:
    """Counts the samples that a model fails on, and says when they are too many."""

    def __init__(self, samples: int) -> None:
        self._left = max(1, int(MOST_FAILED * samples))

    def spend(self, failures: Mapping[str, str]) -> None:
        """Take note of some failures."""
        self._left -= len(failures)
        if self._left < 0:
            sample, why = next(iter(failures.items()))
            raise ModelFailed(
                f"The model fails on more than one sample in {round(1 / MOST_FAILED)}, such as {sample!r} "
                f"({why.rstrip('.')}): mend the model, or leave such samples out of the data."
            )
