"""Images that a decision attack may start from: those of the dataset, selected by class."""

from collections.abc import Callable, Sequence
from typing import final

from torch import Tensor

from robustassay.rng import Streams
from robustassay.threat import Goal, where_rows


@final
class StartImages:
    """Labelled images, read when drawn. The draw of a row does not depend on the part of the data under attack."""

    def __init__(self, labels: Tensor, read: Callable[[Sequence[int]], Tensor]) -> None:
        self._labels = labels.cpu()
        self._read = read

    @classmethod
    def of(cls, images: Tensor, labels: Tensor) -> "StartImages":
        """Use images that are in memory."""
        return cls(labels, lambda rows: images[list(rows)])

    def draw(self, goal: Goal, rng: Streams, like: Tensor) -> Tensor:
        """Draw one image per row whose label reaches the goal; uniform noise for a row without such an image."""
        fits = goal.met(self._labels.to(like.device).expand(len(like), -1))
        order = rng.uniform(len(self._labels)).masked_fill(~fits, -1)
        chosen, found = order.argmax(1).tolist(), fits.any(1)
        noise = rng.uniform(*like.shape[1:])
        images = self._read(chosen).to(like)
        return where_rows(found, images, noise)
