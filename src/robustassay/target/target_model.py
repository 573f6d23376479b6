"""The model under attack, as the evaluation and the attacks call it; nothing else calls its module."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from robustassay.target.calls import Calls, Loss, SeenAs
from robustassay.target.eot import Draws
from robustassay.target.nan_watch import NanWatch
from robustassay.threat import Ball, Goal

Quantise = Callable[[Tensor, Ball | None], Tensor]
"""From images, and the balls they must stay in if any, to the images that the model really receives."""


def unchanged(x: Tensor, ball: Ball | None) -> Tensor:
    """Return the images themselves: a model of this process receives every value as it is."""
    return x


class TargetModel(ABC):
    """A frozen classifier from [0, 1] images to logits.

    There are four final classes: `LocalModel`, `SurrogateModel`, `EnsembleModel`, and `RemoteModel` in
    `robustassay.remote`. A copy (`on`, `with_draws`) is of the same class as the original.
    """

    is_remote: bool = False
    """Whether every query goes to a service: it costs money, and its code and weights are unknown."""

    gives_scores: bool = True
    gives_gradients: bool = True

    smallest_step: float = 0.0
    """The smallest change of a value that the model receives; smaller ones are rounded away."""

    margin_error: float = 0.0
    """How far margins may be off, where the search uses reduced precision."""

    surrogate_name: str | None = None
    """What the surrogate is made of, where one is used for the search."""

    def __init__(
        self,
        module: nn.Module,
        calls: Calls,
        classes: int,
        device: torch.device,
        watch: NanWatch,
        draws: int = 1,
        random: bool = False,
        quantise: Quantise = unchanged,
    ) -> None:
        self.module = module
        """The classifier itself, for verification and for its identity. Ask the target, not the module."""
        self.classes, self.device = classes, device
        self.draws = draws
        """Passes that are averaged where the model draws random numbers."""
        self.random = random or draws > 1
        self._calls, self._watch, self._draws, self._quantise = calls, watch, Draws(draws), quantise

    @property
    @abstractmethod
    def exact(self) -> "TargetModel":
        """The model itself, without a surrogate."""

    @abstractmethod
    def on(self, device: torch.device) -> Self:
        """Return a fresh copy on a device."""

    @abstractmethod
    def with_draws(self, draws: int) -> Self:
        """Return a copy that averages over this many draws of a random model."""

    @abstractmethod
    def with_module(self, module: nn.Module) -> "TargetModel":
        """Return a target around another module that gives the same answers, such as this one behind a wrapper."""

    @abstractmethod
    def with_head(
        self, head: Callable[[nn.Module], nn.Module], classes: int, tried: Tensor | None = None
    ) -> "TargetModel":
        """Return the same model, and its surrogate if any, behind another head, with this many outputs.

        The margin error of a surrogate in half precision is measured again, on the images `tried`.
        """

    def in_tf32(self) -> "TargetModel":
        """Return the target for searches on a GPU whose finds are verified on the model; others are as they were."""
        return self

    def for_search(self, exactly: bool) -> "TargetModel":
        """Return the target to search with: the model itself where margins must be exact."""
        return self.exact if exactly and self.margin_error else self

    def rows_for_exact_search(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return which samples must be searched on the model itself, because its surrogate is not good on them."""
        return torch.zeros_like(labels, dtype=torch.bool)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]` in float32, without a graph."""
        return self._calls.logits(x)

    def drawn_logits(self, x: Tensor) -> Tensor:
        """Return the logits of each draw of a random model, `[n, draws, classes]`."""
        return self._draws.logits(self.logits, x)

    def mean_logits(self, x: Tensor) -> Tensor:
        """Return the logits, averaged over the draws of a random model."""
        return self._draws.mean_logits(self.logits, x)

    def gradient(
        self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor, seen_as: SeenAs | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of each row's loss with respect to its image, and the logits of that image.

        `seen_as` changes the images that the loss sees, never the logits returned.
        """
        return self._calls.gradient(x, loss, goal, *per_row, seen_as=seen_as)

    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the logits `[n, k]` of each row, `[n, k, *image]`, and all logits."""
        return self._calls.jacobian(x, classes)

    def call(self, images: Tensor) -> Tensor:
        """Call the module once with exactly these images: no batches, no padding. For probes with hooks."""
        return self._calls.forward.call(images)

    def call_differentiable(self, images: Tensor) -> Tensor:
        """Call the module once in the way that the model declares for gradients, else as `call`."""
        return self._calls.forward.call_differentiable(images)

    def quantise(self, x: Tensor, ball: Ball | None = None) -> Tensor:
        """Return the images that the model really receives; those of a ball stay inside it."""
        return self._quantise(x, ball)

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of the images that the module takes."""
        return self._calls.forward.dtype

    @property
    def is_adaptive(self) -> bool:
        """Whether the model declares how to differentiate it (BPDA)."""
        return self._calls.forward.is_adaptive

    @property
    def passes(self) -> tuple[int, int]:
        """How many forward and backward passes the gradient at one point costs."""
        forwards = 2 if self.is_adaptive else 1
        return forwards * self.draws, self.draws

    @property
    def batch_size(self) -> int | None:
        """Images per call, where a number was given or memory ran out."""
        return self._calls.batching.batch_size

    def images_per_call(self, x: Tensor) -> int:
        """Return how many images such as `x` one call holds."""
        return self._calls.batching.images_per_call(x)

    def check(self) -> None:
        """Raise if anything that the model has returned so far was NaN, or beyond the precision of its surrogate."""
        self._watch.check()

    def count_iteration(self) -> None:
        """Count an iteration; every `CHECK_EVERY` iterations, check as `check` does."""
        self._watch.count_iteration()

    def discard_unchecked_outputs(self) -> None:
        """Discard what a run that ended early has left unchecked, so that the next run does not raise its error."""
        self._watch.discard()
