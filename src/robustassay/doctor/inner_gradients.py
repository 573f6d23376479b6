"""Gradients that a model computes itself while it is differentiated, as models that purify their images do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor


@final
class InnerGradients:
    """Computes a model's own gradients without an end to the graph of its images.

    Each counts as a constant, or with `unroll` has a graph of its own, so that the steps of the model are
    differentiated exactly.
    """

    def __init__(self, unroll: bool) -> None:
        self.unroll = unroll
        self._leaves: dict[int, Tensor] = {}
        self._gradients: dict[int, Tensor] = {}

    def track(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Remember a tensor that the model wants gradients of; one inside a graph has them already."""
        value = args[0]
        if all(args[1:]) and all(kwargs.values()):
            self._leaves[id(value)] = value
        return func(*args, **kwargs) if value.is_leaf else value

    def differentiate(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call `torch.autograd.grad`."""
        graph = self.unroll or kwargs.get("create_graph", False)
        return func(*args, **{**kwargs, "create_graph": graph, "retain_graph": True})

    def backward(self, value: Tensor) -> None:
        """Compute the gradients that the model will read from `.grad`."""
        leaves = list(self._leaves.values())
        found = torch.autograd.grad(value.sum(), leaves, create_graph=self.unroll, retain_graph=True, allow_unused=True)
        for leaf, gradient in zip(leaves, found, strict=True):
            if gradient is not None:
                before = self._gradients.get(id(leaf))
                self._gradients[id(leaf)] = gradient if before is None else before + gradient

    def read(self, leaf: Tensor) -> Tensor | None:
        """Return the gradient of a tensor so far; None where none was computed here."""
        return self._gradients.get(id(leaf))
