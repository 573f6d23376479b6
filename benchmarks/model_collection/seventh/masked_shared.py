"""What the masked models of the seventh part share: bases, changed layers, images by class."""

import copy
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import Base
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.sixth.wrappers import SIXTH

BARS: Final = "bars"
GREY_CIFAR: Final = "small grey images"


def bars_network() -> nn.Module:
    """Return a small network for bars of 6 x 6."""
    return trained("seventh bars", lambda: convolutions(1, 3), "bars", 120)


def grey_network() -> nn.Module:
    """Return a small network for grey images of 28 x 28."""
    return trained("seventh grey", lambda: convolutions(1, 10, nn.ELU), "cifar10 grey 28x28", 300)


SEVENTH: Final[dict[str, Base]] = {
    **SIXTH,
    BARS: Base(bars_network, "bars", 3, (1, 6, 6), 40 / 255),
    GREY_CIFAR: Base(grey_network, "cifar10 grey 28x28", 10, (1, 28, 28), 6 / 255),
}


def on(base: str, family: str, mask: str, made: str, make: Callable[[nn.Module], nn.Module], **settings: Any) -> Entry:
    """Return a masked model on a base; the mask may change the network, which is a copy."""
    found = SEVENTH[base]
    facts = {"images": found.images, "classes": found.classes, "shape": found.shape, "eps": found.eps, **settings}
    return Entry(f"{mask}, {base}", family, "masked", made, lambda: make(copy.deepcopy(found.load())).eval(), **facts)


def same_value(value: Tensor, slope: Tensor) -> Tensor:
    """Return the first tensor with the gradient of the second."""
    return value.detach() + (slope - slope.detach())


def with_layers(net: nn.Module, kind: type[nn.Module], make: Callable[[Any], nn.Module], inside: str = "") -> nn.Module:
    """Return a copy in which every layer of a kind whose path holds the text is replaced."""
    net = copy.deepcopy(net)
    for path, layer in list(net.named_modules()):
        if type(layer) is kind and inside in path:
            owner, _, name = path.rpartition(".")
            setattr(net.get_submodule(owner), name, make(layer))
    return net


def of_class(images: str, label: int) -> Tensor:
    """Return the images of a class."""
    x, y = images_of(images)
    return x[y == label]


def thumbnail(x: Tensor, side: int) -> Tensor:
    """Return the means of the cells of a coarse grid, at the image's own size."""
    return F.interpolate(F.adaptive_avg_pool2d(x, side), size=x.shape[2:])


def as_tensor(value: Any) -> Tensor:
    """Return what an untyped call gave, as a tensor."""
    return torch.as_tensor(value)
