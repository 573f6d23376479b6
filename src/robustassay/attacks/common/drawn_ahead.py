"""Random numbers of several steps of an attack, drawn together: one large draw costs a GPU less than many."""

from collections.abc import Callable, Sequence
from typing import Final, final

from torch import Tensor

from robustassay.rng import Streams

VALUES: Final = 1 << 16
"""Values per row that are drawn together, at most; a step of a large image is drawn alone."""

MOST_STEPS: Final = 16

Draw = Callable[[Streams], tuple[Tensor, ...]]
"""From streams to tensors with one entry per row of them."""


@final
class DrawnAhead:
    """Gives the numbers of one step after the other, the same as a draw in every step would give.

    How many steps are drawn together depends on the image alone, so a row's stream does not depend on other rows.
    """

    def __init__(self, draw: Draw, values: int, draws: int = 1) -> None:
        self._draw, self._draws = draw, draws
        self._steps = max(1, min(MOST_STEPS, VALUES // max(1, values)))
        self._at = self._steps
        self.drawn: Sequence[Tensor] = ()
        """The numbers by row, from which dropped rows are to be dropped, too."""

    def next(self, rng: Streams) -> tuple[Tensor, ...]:
        """Return the numbers of the next step."""
        if self._at == self._steps:
            found = self._draw(rng.ahead(self._steps, self._draws))
            self.drawn, self._at = tuple(each.reshape(-1, self._steps, *each.shape[1:]) for each in found), 0
        step = tuple(each[:, self._at] for each in self.drawn)
        self._at += 1
        return step
