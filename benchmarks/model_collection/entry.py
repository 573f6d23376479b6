"""What the collection knows of a model, and how its images are chosen and its answers are read."""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, final

import torch
from torch import Tensor, nn

from benchmarks.model_collection.images import images_of
from robustassay import data

Kind = Literal["masked", "honest"]
Half = Literal["tuning", "held-out"]
Later = Literal["second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
Part = Half | Later
Asked = Literal["together", "alone", "majority", "fresh"]
"""How a decision is read: in a batch, one image per call, as the majority of calls, or from an unused copy."""

HALVES: Final[tuple[Half, Half]] = ("tuning", "held-out")
LATER: Final[tuple[Later, ...]] = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
PARTS: Final[tuple[Part, ...]] = (*HALVES, *LATER)
EPS: Final = 8 / 255
DRAWS: Final = 32
BATCH: Final = 32
SEARCHED: Final = 320
SPLIT: Final = "1"
"""Chosen once, before any model was measured, so that both halves hold about as many models of each kind."""


@final
@dataclass(frozen=True)
class Entry:
    """One model of the collection; `build` makes it anew, and always the same."""

    name: str
    family: str
    kind: Kind
    made: str
    build: Callable[[], nn.Module]
    images: str = "cifar10"
    classes: int = 10
    shape: tuple[int, int, int] = (3, 32, 32)
    eps: float = EPS
    asked: Asked = "together"
    apart: Later | None = None
    """Written after the doctor, or after the remedies were mended: neither half holds a model of this family."""

    @property
    def part(self) -> Part:
        """The part of the collection, for most a half by a hash of the family's name; a family is never divided."""
        if self.apart:
            return self.apart
        return HALVES[hashlib.sha256((SPLIT + self.family).encode()).digest()[0] % 2]

    def samples(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the first images that the model classifies correctly, and their labels."""
        x, y = images_of(self.images)
        model, rows = self.build(), torch.zeros(0, dtype=torch.long)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for part in torch.arange(min(len(x), SEARCHED)).chunk(-(-min(len(x), SEARCHED) // BATCH)):
                rows = torch.cat((rows, part[self.decisions(model, x[part]) == y[part]]))
                if len(rows) >= count:
                    break
        return x[rows[:count]], y[rows[:count]]

    def dataset(self, count: int) -> data.Dataset:
        """Return the samples as a dataset of this many classes."""
        x, y = self.samples(count)
        return data.from_arrays(x, y, self.images, classes=[str(label) for label in range(self.classes)])

    def decisions(self, model: nn.Module, x: Tensor, draws: int = DRAWS) -> Tensor:
        """Return one label per image, read as the entry says; `draws` are the calls of a majority."""
        with torch.no_grad():
            x = x.to(next((values.dtype for values in model.parameters()), torch.float32))
            if self.asked == "fresh":
                return labels(copy.deepcopy(model)(x))
            if self.asked == "alone":
                return torch.cat([labels(model(image[None])) for image in x])
            if self.asked == "majority":
                return torch.stack([labels(model(x)) for _ in range(draws)]).mode(0).values
            return labels(model(x))


def labels(logits: Tensor) -> Tensor:
    """Return the winning class of each row."""
    return logits.argmax(1)
