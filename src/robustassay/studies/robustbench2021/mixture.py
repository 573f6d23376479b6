"""Test images under a mixture of corruptions: each image under one, all kinds and severities equally often.

An attack on every one of the 75 combinations would cost 75 times as much; the mixture has the same mean.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from robustassay.data import Dataset
from robustassay.data.corruptions import CorruptionSpec, corruption_grid
from robustassay.data.corruptions import create as create_corruption
from robustassay.data.dataset import Reader

VERSION: Final = "assay-corruption-mixture-1"
"""Raise this whenever the same images would be corrupted otherwise than before."""


def mixture(test: Dataset, images: int, seed: int = 0) -> Dataset:
    """Return the first images, each under a corruption chosen at random."""
    few = test.take(min(images, len(test)))
    grid = corruption_grid()
    # Shuffled, because images often come in the order of their classes.
    order = np.random.default_rng(seed).permutation(len(few))
    cells = tuple(grid[int(place) % len(grid)] for place in np.argsort(order))
    identity = "\n".join((VERSION, few.sha256, str(seed), *few.ids))
    return replace(
        few,
        name=f"corruptions|{test.name}",
        sha256=hashlib.sha256(identity.encode()).hexdigest(),
        read=_MixtureReader(few.read, few.ids, cells, seed),
        part_of=None,
    )


@final
@dataclass(frozen=True)
class _MixtureReader:
    read: Reader
    ids: tuple[str, ...]
    cells: tuple[CorruptionSpec, ...]
    seed: int

    def __call__(self, rows: Sequence[int]) -> Tensor:
        x = self.read(rows)
        one_by_one = [
            create_corruption(self.cells[row])(x[at : at + 1], [self.ids[row]], self.seed)
            for at, row in enumerate(rows)
        ]
        return torch.cat(one_by_one) if one_by_one else x
