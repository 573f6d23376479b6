"""The box that shows gradients."""

from collections.abc import Callable
from typing import Final, Self

import torch
from torch import Tensor

from robustassay.rng import Streams
from robustassay.target.access import ScoreAccess
from robustassay.target.calls import Loss, SeenAs
from robustassay.threat.losses import own_loss

RowTransform = Callable[[Tensor, Tensor], Tensor]
"""From images and the row each belongs to, to what a loss is shown of them."""

InputTransform = Callable[[Streams, Tensor], RowTransform]
"""Draws, for all rows at once, how their images are changed on the way into the model."""

FIRST_LOOKS: Final = 8
LOOK_EVERY: Final = 4
"""Iterations of which each is looked at, and after them only every so many."""


class GradientAccess(ScoreAccess):
    """Shows gradients as well; of a random model it shows means over many draws, which its owner can take too."""

    def with_input_transform(self, transform: InputTransform) -> "GradientAccess":
        """Return a box of the same rows whose gradients are taken through a change of the input.

        Success is still judged on the images themselves, so a gradient costs one more look.
        """
        assert self._copies == 1, "a change of the input is drawn for rows, not for their copies"
        box = GradientAccess(
            self._target, self._ledger, self.rng, self._rows, self._pulse, self._start_images, self._inner
        )
        box._transform = transform
        return box

    _transform: InputTransform | None = None

    def _of(self, mask: Tensor, inner: bool) -> Self:
        box = super()._of(mask, inner)
        box._transform = self._transform
        return box

    def _looks_away(self) -> bool:
        """On a GPU, after the first iterations, look only now and then: each look makes it wait.

        Rows that finish meanwhile go on for a few steps, which are booked and change no claim.
        """
        away = self._target.device.type == "cuda" and not self._ledger.main.seeks_minimum
        return away and self._iteration > FIRST_LOOKS and self._iteration % LOOK_EVERY != 0

    def margin_left(self) -> Tensor:
        """Return how much of a row's clean margin is left at the best point seen inside its ball, as a part of it."""
        return self.track_margins()()

    def track_margins(self) -> Callable[[], Tensor]:
        """Return what will say how much margin is left of the rows now in flight, even after some have gone."""
        ledger, rows = self._ledger, self._rows
        return lambda: ledger.lowest_margin[rows] / ledger.clean_margin[rows]

    def gradient(self, x: Tensor, loss: Loss | None = None, *per_row: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of the loss at each point, by default the goal's own, and the logits there.

        What else the loss must know of a row, such as a class it aims at, is passed as one value a row.
        """
        climb = loss or own_loss
        forwards, backwards = self._target.passes
        change = None if self._transform is None else self._transform(self.rng, x)

        def ask(points: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
            known = (values[owner] for values in per_row)
            seen_as = None if change is None else _for_points(change, owner)
            return self._target.gradient(points, climb, self.goal.among(owner), *known, seen_as=seen_as)

        looks = 0 if change is None or forwards > backwards else backwards
        return self._ask(x, ask, (forwards + looks, backwards))

    def jacobian(self, x: Tensor, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the gradient of every logit, or of the `[rows, k]` named, at one point a row, and the logits."""
        every = torch.arange(self._target.classes, device=x.device).expand(len(x), -1)
        wanted = every if classes is None else classes

        def ask(points: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
            return self._target.jacobian(points, wanted[owner])

        forwards, backwards = self._target.passes
        return self._ask(x, ask, (forwards, backwards * wanted.shape[1]))

    @property
    def _look(self) -> tuple[int, int]:
        return self._target.draws, 0

    def _logits_only(self, x: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._target.mean_logits(x)
        return logits, logits


def _for_points(change: RowTransform, owner: Tensor) -> SeenAs:
    def seen_as(images: Tensor, rows: slice) -> Tensor:
        owners = owner[rows]
        padding = owners[-1:].expand(len(images) - len(owners))
        return change(images, torch.cat((owners, padding)))

    return seen_as
