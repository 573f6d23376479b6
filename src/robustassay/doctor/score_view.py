"""Reads scores of all classes from a tensor inside a model, whatever the order of its axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, final

from torch import Tensor

MOST_PLACES: Final = 4
"""A tensor with more values per image and class holds features, and no scores."""


@final
@dataclass(frozen=True)
class ScoreView:
    """The axis of the images, that of the classes, and the place among the other values of an image and a class.

    Without a place, the values of an image and a class are added up.
    """

    images: int = 0
    classes: int = 1
    place: int | None = 0

    def of(self, tensor: Tensor) -> Tensor:
        """Return the scores, `[n, classes]`."""
        if tensor.dim() == 2 and self.images < self.classes:
            return tensor
        moved = tensor.movedim((self.images, self.classes), (0, 1))
        values = moved.reshape(*moved.shape[:2], -1)
        return values.sum(-1) if self.place is None else values[..., self.place]

    def __str__(self) -> str:
        place = "sum" if self.place is None else f"place {self.place + 1}"
        return "" if self == ScoreView() else f" ({place})"


def score_views(shape: Sequence[int], images: int, classes: int) -> Iterator[ScoreView]:
    """Return every view of a tensor of this shape that has one score for each image and class."""
    first = next((axis for axis, size in enumerate(shape) if size == images), None)
    last = next((axis for axis in reversed(range(len(shape))) if shape[axis] == classes and axis != first), None)
    if first is None or last is None:
        return
    places = prod(shape) // (images * classes)
    if places <= MOST_PLACES:
        yield from (ScoreView(first, last, place) for place in range(places))
    if 1 < places <= MOST_PLACES:
        yield ScoreView(first, last, None)
