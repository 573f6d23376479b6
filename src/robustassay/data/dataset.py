"""Dataset: labelled images with stable ids, read row by row."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from robustassay.errors import BadRequest

# From row numbers to float32 images in [0, 1]; always a new tensor that the caller may change.
Reader = Callable[[Sequence[int]], Tensor]

IDENTITY_VERSION = "assay-dataset-1"


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images whose ids and content identity stay the same between runs.

    `sha256` covers ids, labels and images of the whole dataset as it was loaded. A part of it, made by `take`
    or `select`, keeps it: so a run over the first 100 samples can later be extended to more.
    """

    name: str
    ids: tuple[str, ...] = field(repr=False)
    labels: Tensor = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    sha256: str
    read: Reader = field(repr=False)
    part_of: "Dataset | None" = field(default=None, repr=False)

    @property
    def whole(self) -> "Dataset":
        """The dataset as it was loaded."""
        return self.part_of or self

    def __len__(self) -> int:
        return len(self.ids)

    def images(self, rows: Sequence[int] | slice) -> Tensor:
        """Load these rows: float32 [k, C, H, W] in [0, 1]; the caller may change the tensor."""
        return self.read(self._positions(rows))

    def take(self, limit: int | None) -> "Dataset":
        """Return the first `limit` samples; all of them for None."""
        if limit is None:
            return self
        if not 1 <= limit <= len(self):
            raise BadRequest(
                f"The dataset {self.name} has {len(self)} samples, not {limit}: "
                f"set a limit from 1 to {len(self)}, or none."
            )
        return self.select(slice(limit))

    def select(self, rows: Sequence[int] | slice) -> "Dataset":
        """Return these samples, in the given order."""
        positions = self._positions(rows)
        if not positions:
            raise BadRequest(f"No row of the dataset {self.name} is selected: give at least one row.")
        if len(set(positions)) < len(positions):
            raise BadRequest(f"A row of the dataset {self.name} is selected twice: give each row once.")
        return replace(
            self,
            ids=tuple(self.ids[row] for row in positions),
            labels=self.labels[torch.tensor(positions)],
            read=_Selected(self.read, tuple(positions)),
            part_of=self.whole,
        )

    def _positions(self, rows: Sequence[int] | slice) -> list[int]:
        if isinstance(rows, slice):
            return list(range(len(self)))[rows]
        wanted = np.asarray(rows)
        if wanted.size == 0:
            return []
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            raise BadRequest("Rows must be a list of integers: convert a mask with numpy.flatnonzero.")
        if wanted.min() < 0 or wanted.max() >= len(self):
            raise BadRequest(
                f"The rows go from {wanted.min()} to {wanted.max()}, but the dataset {self.name} "
                f"has {len(self)} samples: use rows 0 to {len(self) - 1}."
            )
        return [int(row) for row in wanted]


@dataclass(frozen=True)
class _Selected:
    """Reads some rows of another reader; a class instead of a closure, so that datasets can be pickled."""

    read: Reader
    rows: tuple[int, ...]

    def __call__(self, rows: Sequence[int]) -> Tensor:
        return self.read([self.rows[row] for row in rows])


def identity(content: str, ids: Sequence[str], labels: Tensor, chunks: Iterable[bytes]) -> str:
    """Hash ids, labels and content; `content` names the kind of the chunks, so that two kinds never collide."""
    head = {"version": IDENTITY_VERSION, "content": content, "ids": list(ids), "labels": labels.tolist()}
    digest = hashlib.sha256(json.dumps(head, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
