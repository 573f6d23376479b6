"""Images that take long to make, such as corrupted ones, made once for all models of a study."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from robustassay.data import Dataset
from robustassay.data.dataset import Reader


def kept(dataset: Dataset) -> Dataset:
    """Return the same dataset, whose images are made on the first read and kept, one byte per value.

    Only for images of 256 levels, which are the same again.
    """
    return replace(dataset, read=_KeptReader(dataset.read, len(dataset)))


@final
@dataclass(frozen=True)
class _KeptReader:
    read: Reader
    images: int = field(repr=False)

    def __call__(self, rows: Sequence[int]) -> Tensor:
        return self._levels[list(rows)].float().div_(255)

    @cached_property
    def _levels(self) -> Tensor:
        return self.read(range(self.images)).mul_(255).round_().to(torch.uint8)
