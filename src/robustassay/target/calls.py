"""Logits, gradients and Jacobians of any number of images: batches, padding, draws and the watch for NaN together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol, final

import torch
from torch import Tensor

from robustassay.errors import ModelFailed
from robustassay.target.batching import Batching
from robustassay.target.differentiation import differentiate
from robustassay.target.eot import Draws
from robustassay.target.forward import Forward
from robustassay.target.nan_watch import NanWatch
from robustassay.threat import Goal

Loss = Callable[..., Tensor]
"""From logits, the goals of their rows, and further values per row, to one number per row that the attacker raises."""

SeenAs = Callable[[Tensor, slice], Tensor]
"""From images and the rows they belong to (the last may be repeated as padding) to the images that a loss sees."""

NO_GRADIENT: Final = " (mend the backward pass of the model, or attack it without gradients, as square does)"
"""What to do where a gradient cannot be computed."""


class Calls(Protocol):
    """How a target asks its model."""

    @property
    def forward(self) -> Forward:
        """One call of the module."""
        ...

    @property
    def batching(self) -> Batching:
        """How many images one call holds."""
        ...

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]` in float32, without a graph."""
        ...

    def gradient(
        self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor, seen_as: SeenAs | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of each row's loss with respect to its image, and the logits of that image."""
        ...

    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the logits `[n, k]` of each row, `[n, k, *image]`, and all logits."""
        ...


@final
class BatchedCalls:
    """Calls a module of this process. `error` is what it raises where the module fails."""

    def __init__(
        self,
        forward: Forward,
        classes: int,
        device: torch.device,
        batching: Batching,
        watch: NanWatch,
        draws: Draws,
        error: type[Exception] = ModelFailed,
        nan_gradient_is_zero: bool = False,
    ) -> None:
        self.forward, self.batching = forward, batching
        self._classes, self._device, self._watch, self._draws, self._error = classes, device, watch, draws, error
        self._nan_gradient_is_zero = nan_gradient_is_zero

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]` in float32, without a graph."""
        logits = x.new_zeros(len(x), self._classes)

        @torch.no_grad()
        def call(rows: slice) -> None:
            images = self.batching.pad(x[rows])
            logits[rows] = self._checked(self.forward.call_without_graph, images)[: rows.stop - rows.start]

        self.batching.run(x, call)
        return logits

    @torch.enable_grad()
    def gradient(
        self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor, seen_as: SeenAs | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of each row's loss with respect to its image, and the logits of that image.

        `seen_as` changes the images that the loss sees, never the logits returned.
        """
        gradient, logits = torch.zeros_like(x), x.new_zeros(len(x), self._classes)

        def call(rows: slice) -> None:
            n = rows.stop - rows.start
            images = self.batching.pad(x[rows]).detach().requires_grad_()
            out = self._drawn(images if seen_as is None else seen_as(images, rows))[:, :n]
            values, goals = [value[rows] for value in per_row], goal.among(rows)

            def loss_of(drawn: Tensor) -> Tensor:
                return torch.stack([loss(draw, goals, *values).sum() for draw in drawn]).mean()

            gradient[rows] = self._differentiated(partial(self.forward.gradient, out, loss_of), images)[:n]
            logits[rows] = out.detach().mean(0)

        self.batching.run(x, call, self._draws.count)
        if seen_as is not None or self.forward.is_adaptive:
            logits = self._draws.mean_logits(self.logits, x)
        return gradient, logits

    @torch.enable_grad()
    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the logits `[n, k]` of each row, `[n, k, *image]`, and all logits."""
        jacobian = x.new_zeros(len(x), classes.shape[1], *x.shape[1:])
        logits = x.new_zeros(len(x), self._classes)

        def call(rows: slice) -> None:
            n = rows.stop - rows.start
            images = self.batching.pad(x[rows]).detach().requires_grad_()
            out = self._drawn(images)[:, :n].mean(0)
            chosen = out.gather(1, classes[rows])
            for k in range(classes.shape[1]):
                back = partial(differentiate, chosen[:, k].sum(), device=self._device, keep_graph=True)
                jacobian[rows, k] = self._differentiated(back, images)[:n]
            logits[rows] = out.detach()

        self.batching.run(x, call, self._draws.count)
        return jacobian, self._draws.mean_logits(self.logits, x) if self.forward.is_adaptive else logits

    def _drawn(self, images: Tensor) -> Tensor:
        """Return `[draws, n, classes]` logits that can be differentiated."""
        return self._draws.stack(lambda batch: self._checked(self.forward.call_before_gradient, batch), images)

    def _checked(self, call: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        with self._named_errors("The model raised an error", images):
            logits = call(images)
        if logits.shape != (len(images), self._classes):
            raise self._error(
                f"The model returned outputs of shape {tuple(logits.shape)} for {len(images)} images and "
                f"{self._classes} classes: it must return one value per image and class, for all images."
            )
        self._watch.see_logits(logits)
        return logits

    def _differentiated(self, back: Callable[[Tensor], Tensor | None], images: Tensor) -> Tensor:
        """Return the gradient; zeros where there is none: flags warn the user before a run of such a model."""
        with self._named_errors("The gradient could not be computed", images, NO_GRADIENT):
            gradient = back(images)
        if gradient is None:
            return torch.zeros_like(images)
        if self._nan_gradient_is_zero:
            gradient = gradient.masked_fill(gradient.isnan(), 0)
        self._watch.see_gradient(gradient)
        return gradient

    @contextmanager
    def _named_errors(self, what: str, images: Tensor, to_do: str = "") -> Iterator[None]:
        """Say what failed; when memory runs out, smaller batches follow."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise self._error(f"{what} on a batch of {len(images)} images: {error}{to_do}") from error
