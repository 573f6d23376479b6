"""A model with another head: a binary classifier on its features, with one planted adversarial example per sample."""

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor, nn

CLASSES: Final = 2
"""Classes of a planted model: 0 where the sample is, 1 where the planted example is."""


@final
class FeatureModel(nn.Module):
    """Returns, of each image, the input of one linear layer (where one is named) and the logits, side by side.

    The gradient goes the way that the model declares, where it declares one (BPDA).
    """

    def __init__(self, module: nn.Module, layer: str | None) -> None:
        super().__init__()
        self.module, self.layer = module, layer
        if layer is not None:
            module.get_submodule(layer)  # raises at once where a surrogate has no such layer
        declared: Callable[[Tensor], Tensor] | None = getattr(module, "differentiable", None)
        if declared is not None:
            self.differentiable = lambda x: self._call(declared, x)

    def forward(self, x: Tensor) -> Tensor:
        """Return features and logits."""
        return self._call(self.module, x)

    def _call(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        if self.layer is None:
            return function(x)
        inputs: list[Tensor] = []
        layer = self.module.get_submodule(self.layer)
        handle = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        try:
            logits = function(x)
        finally:
            handle.remove()
        return torch.cat((inputs[-1], logits), 1)


@final
class PlantedModel(nn.Module):
    """A binary classifier whose weights depend on the nearest of some images.

    So one model holds the heads of many samples, whatever the order in which a batch brings their images.
    """

    def __init__(self, features: FeatureModel, centres: Tensor, weights: Tensor, offsets: Tensor, order: float) -> None:
        super().__init__()
        self.features, self.order = features, order
        self.register_buffer("centres", centres.flatten(1).float())
        self.register_buffer("weights", weights.double())
        self.register_buffer("offsets", offsets.double())
        declared: Callable[[Tensor], Tensor] | None = getattr(features, "differentiable", None)
        if declared is not None:
            self.differentiable = lambda x: self._classify(x, declared(x))

    centres: Tensor
    weights: Tensor
    offsets: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the two logits."""
        return self._classify(x, self.features(x))

    def _classify(self, x: Tensor, features: Tensor) -> Tensor:
        nearest = torch.cdist(x.detach().flatten(1).float(), self.centres, p=self.order).argmin(1)
        score = (features.double() * self.weights[nearest]).sum(1) + self.offsets[nearest]
        return torch.stack((-score / 2, score / 2), 1).float()


def last_linear_layer(module: nn.Module, call: Callable[[], Tensor], images: int) -> str | None:
    """Name the linear layer that a call of the module uses last, if it gets one row of features per image."""
    seen: list[tuple[str, Tensor]] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, given, name=name: seen.append((name, given[0])))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        return None
    name, given = seen[-1]
    inside_vmap = torch._C._functorch.is_functorch_wrapped_tensor(given)
    return name if not inside_vmap and given.dim() == 2 and len(given) == images else None
