"""The access to gradients."""

from collections.abc import Callable
from typing import Final, Self

import torch
from torch import Tensor

from robustassay.rng import Streams
from robustassay.target.access import ScoreAccess
from robustassay.target.calls import Loss, SeenAs
from robustassay.threat.losses import own_loss

RowTransform = Callable[[Tensor, Tensor], Tensor]
"""From images and the row of each, to the images that the loss sees."""

InputTransform = Callable[[Streams, Tensor], RowTransform]
"""Draws, for all rows at once, a random change of the images before the model."""

CHECKED_ITERATIONS: Final = 8
CHECK_EVERY: Final = 4
"""On a GPU, finished rows are dropped in the first `CHECKED_ITERATIONS`, then every `CHECK_EVERY` iterations."""


class GradientAccess(ScoreAccess):
    """Gives gradients as well; of a random model, logits and gradients are means over draws (EOT)."""

    def with_input_transform(self, transform: InputTransform) -> "GradientAccess":
        """Return the access of the same rows with gradients through a change of the input.

        Success is still measured on the images themselves, so a gradient costs one more forward pass.
        """
        assert self._copies == 1, "a change of the input is drawn for rows, not for their copies"
        access = GradientAccess(
            self._target, self._ledger, self.rng, self._rows, self._on_step, self._start_images, self._inner
        )
        access._transform = transform
        return access

    _transform: InputTransform | None = None

    def _of(self, mask: Tensor, inner: bool) -> Self:
        access = super()._of(mask, inner)
        access._transform = self._transform
        return access

    def _skips_check(self) -> bool:
        """On a GPU, after the first iterations, check only some of them: each check makes the GPU wait.

        Rows that finish meanwhile go on for a few steps, which are counted and change no claim.
        """
        if self._ledger.main.seeks_minimum or self._target.device.type != "cuda":
            return super()._skips_check()
        return self._iteration > CHECKED_ITERATIONS and self._iteration % CHECK_EVERY != 0

    def margin_left(self) -> Tensor:
        """Return the lowest margin of each row inside its ball, as a fraction of its clean margin."""
        return self.track_margins()()

    def track_margins(self) -> Callable[[], Tensor]:
        """Return a function that gives the margins left of the present rows, even after some are dropped."""
        ledger, rows = self._ledger, self._rows
        return lambda: ledger.lowest_margin[rows] / ledger.clean_margin[rows]

    def gradient(self, x: Tensor, loss: Loss | None = None, *per_row: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of the loss at each point, by default the goal's own, and the logits there.

        Further arguments of the loss, such as a target class, are passed as one value per row.
        """
        raised = loss or own_loss
        forwards, backwards = self._target.passes
        change = None if self._transform is None else self._transform(self.rng, x)

        def ask(points: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
            values = (value[owner] for value in per_row)
            seen_as = None if change is None else _for_points(change, owner)
            return self._target.gradient(points, raised, self.goal.among(owner), *values, seen_as=seen_as)

        extra = 0 if change is None or forwards > backwards else backwards
        return self._ask(x, ask, (forwards + extra, backwards))

    def jacobian(self, x: Tensor, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the gradient of every logit, or of the `[rows, k]` given, at one point per row, and the logits."""
        every = torch.arange(self._target.classes, device=x.device).expand(len(x), -1)
        wanted = every if classes is None else classes

        def ask(points: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
            return self._target.jacobian(points, wanted[owner])

        forwards, backwards = self._target.passes
        return self._ask(x, ask, (forwards, backwards * wanted.shape[1]))

    @property
    def _passes_per_query(self) -> tuple[int, int]:
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
