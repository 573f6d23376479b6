"""The depth of a network, counted in the same way for every architecture."""

from typing import Any, Final

import torch
from torch import Tensor, nn

from robustassay.target import LocalModel

LAYERS: Final = ("ConvolutionBackward", "AddmmBackward", "MmBackward")
"""Operations with weights, by the names of their nodes in torch's graph: convolutions and dense layers."""
PRODUCT: Final = "MulBackward"


def depth(module: nn.Module, image: Tensor) -> int | None:
    """Count the layers on the longest path from an image `[1, 3, h, w]` to the logits; see `layers_between`."""
    x = image.detach().clone().requires_grad_()
    with torch.enable_grad():
        return layers_between(x, LocalModel(module, 1, image.device).call(x))  # the number of classes does not matter


def layers_between(x: Tensor, logits: Tensor) -> int | None:
    """Count the convolutions and dense layers on the longest path from images to the logits computed from them.

    Of two paths that are multiplied, the shorter counts: a gate such as squeeze-and-excitation adds no layer. This is
    the number in the names of VGG, ResNet and DenseNet. None where no graph leads to the images.
    """
    depths: dict[Any, int | None] = {}
    waiting = [logits.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [other for other, _ in node.next_functions if other is not None] if node is not None else []
        unknown = [other for other in before if other not in depths]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        depths[node] = 0 if getattr(node, "variable", None) is x else _after(node, [depths[one] for one in before])
    return depths[logits.grad_fn]


def _after(node: Any, before: list[int | None]) -> int | None:
    """Return the depth after an operation; paths from weights alone do not count."""
    known = [one for one in before if one is not None]
    if not known:
        return None
    name = type(node).__name__
    return (min if name.startswith(PRODUCT) else max)(known) + name.startswith(LAYERS)
