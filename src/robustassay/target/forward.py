"""One call of a module in one precision, and its gradient: the only place where a module is called."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from robustassay.target.cuda_graphs import ReplayedModule
from robustassay.target.differentiation import LossOf, differentiate, differentiate_in_half
from robustassay.target.environment import callers_environment
from robustassay.target.precision import full_precision, image_dtype


def call_module(module: nn.Module, images: Tensor) -> Any:
    """Return what a module gives for exactly these images, in its own precision and without a graph.

    This is for checks of a module before it becomes a target: what it gives may not even be a tensor.
    """
    with torch.no_grad(), full_precision(images.device), callers_environment():
        return module(images.to(image_dtype(module)))


class Forward(ABC):
    """Calls a module with exactly the images given. Logits are float32."""

    is_adaptive: bool = False
    """Whether the model declares how to differentiate it (BPDA)."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The floating type of the images that the module takes."""

    @abstractmethod
    def call(self, images: Tensor) -> Tensor:
        """Return the logits, with a graph where gradients are enabled."""

    @abstractmethod
    def call_without_graph(self, images: Tensor) -> Tensor:
        """Return the logits when no gradient is wanted, in the fastest way."""

    @abstractmethod
    def call_differentiable(self, images: Tensor) -> Tensor:
        """Return logits to differentiate: by the way that the model declares, else those of `call`."""

    @abstractmethod
    def call_before_gradient(self, images: Tensor) -> Tensor:
        """Return the same logits in the fastest way, for one gradient before the next call."""

    @abstractmethod
    def gradient(self, logits: Tensor, loss_of: LossOf, images: Tensor) -> Tensor | None:
        """Return the gradient of the loss; None where no graph connects the logits to the images."""


@final
class FullPrecision(Forward):
    """A module in its own precision, whatever its caller has set.

    A defended model may declare how an adaptive attacker differentiates it, in a method `differentiable` with the
    signature of `forward` (BPDA, Athalye et al. 2018, arXiv:1802.00420). With `replays`, calls without gradients are
    recorded on a GPU and replayed, with the same bits: for a module that makes the same operations in every call. With
    `replays_gradients`, so are calls with gradients: not for a random model, whose draws have one gradient together.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        differentiable: Callable[[Tensor], Tensor] | None = None,
        tf32: bool = False,
        replays: bool = False,
        replays_gradients: bool = False,
    ) -> None:
        self._module, self._device, self._differentiable, self._tf32 = module, device, differentiable, tf32
        self._replays_gradients = replays_gradients and replays and differentiable is None
        self._replayed = ReplayedModule(module, image_dtype(module)) if replays else None
        self.is_adaptive = differentiable is not None

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of the module's parameters."""
        return image_dtype(self._module)

    def call(self, images: Tensor) -> Tensor:
        """Call the module."""
        return self._call(self._module, images)

    def call_without_graph(self, images: Tensor) -> Tensor:
        """Call the module, or replay the call."""
        if self._replayed is None or torch.is_grad_enabled():
            return self._call(self._module, images)
        with full_precision(self._device, self._tf32), callers_environment():
            return self._replayed(images)

    def call_differentiable(self, images: Tensor) -> Tensor:
        """Call what the model declares, or the module."""
        return self._call(self._differentiable or self._module, images)

    def call_before_gradient(self, images: Tensor) -> Tensor:
        """Call the module, or replay the call."""
        if self._replayed is None or not self._replays_gradients:
            return self.call_differentiable(images)
        with full_precision(self._device, self._tf32), callers_environment():
            return self._replayed(images)

    def _call(self, function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        with full_precision(self._device, self._tf32), callers_environment():
            return function(images.to(self.dtype)).float()

    def gradient(self, logits: Tensor, loss_of: LossOf, images: Tensor) -> Tensor | None:
        """Differentiate the loss of the logits."""
        return differentiate(loss_of(logits), images, self._device, tf32=self._tf32)


@final
class HalfPrecision(Forward):
    """A module in half precision, whose passes are replayed on a GPU."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._module = ReplayedModule(module, dtype)

    @property
    def dtype(self) -> torch.dtype:
        """The type of half precision."""
        return self._dtype

    def call(self, images: Tensor) -> Tensor:
        """Call the module."""
        return self._module.call_directly(images)

    def call_without_graph(self, images: Tensor) -> Tensor:
        """Replay the call."""
        return self._module(images)

    def call_differentiable(self, images: Tensor) -> Tensor:
        """Replay the call."""
        return self._module(images)

    def call_before_gradient(self, images: Tensor) -> Tensor:
        """Replay the call."""
        return self._module(images)

    def gradient(self, logits: Tensor, loss_of: LossOf, images: Tensor) -> Tensor | None:
        """Differentiate with each row in its own range."""
        return differentiate_in_half(logits, loss_of, images)
