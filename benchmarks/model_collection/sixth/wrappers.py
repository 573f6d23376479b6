"""What the masked models of the sixth part share: bases with small robust networks, patterns, wrappers."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    BASES,
    PAIRS,
    SPOTS,
    SYMBOLS,
    SYMBOLS_11,
    SYMBOLS_16,
    TEXTURES,
    WAVES,
    Base,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, perceptron, trained
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]
STEPS: Final = 250
GREY: Final = "grey images"


def robust(name: str) -> Base:
    """Return a base with a network that was trained adversarially at the base's radius."""
    base = BASES[name]
    make = partial(convolutions, base.shape[0], base.classes)
    load = partial(trained, "sixth robust", make, base.images, STEPS, base.eps)
    return Base(load, base.images, base.classes, base.shape, base.eps)


def grey_network() -> nn.Module:
    """Return a small network for grey images of 28 x 28."""
    return trained("sixth grey", partial(convolutions, 1, 10), "cifar10 grey 28x28")


SIXTH: Final[dict[str, Base]] = {
    **BASES,
    GREY: Base(grey_network, "cifar10 grey 28x28", 10, (1, 28, 28), 8 / 255),
    **{f"robust {name}": robust(name) for name in (SYMBOLS, SYMBOLS_11, SYMBOLS_16, TEXTURES, WAVES, SPOTS, PAIRS)},
}


def on(base: str, family: str, mask: str, made: str, make: Callable[[nn.Module], nn.Module], **settings: Any) -> Entry:
    """Return a masked model on a base."""
    found = SIXTH[base]
    facts = {"images": found.images, "classes": found.classes, "shape": found.shape, "eps": found.eps, **settings}
    return Entry(f"{mask}, {base}", family, "masked", made, lambda: make(found.load()).eval(), **facts)


def dense(base: str, width: int = 48) -> nn.Module:
    """Return a dense network for the images of a base."""
    found = SIXTH[base]
    values = found.shape[0] * found.shape[1] * found.shape[2]
    return trained("sixth dense", partial(perceptron, values, found.classes, nn.Tanh, width), found.images, 150)


def other(base: str) -> nn.Module:
    """Return a second convolutional network for the images of a base."""
    found = SIXTH[base]
    return trained("sixth other", partial(convolutions, found.shape[0], found.classes, nn.Tanh, width=6), found.images)


def untrained(channels: int, outputs: int, seed: int = 5) -> nn.Module:
    """Return a small network with fixed random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return convolutions(channels, outputs, nn.Tanh).eval().requires_grad_(False)


def gaps(z: Tensor) -> Tensor:
    """Return the logits minus the mean of the two largest: only the winner's is positive."""
    return z - z.topk(2, 1).values.mean(1, keepdim=True)


def patterns(shape: tuple[int, ...], count: int, seed: int) -> Tensor:
    """Return fixed patterns of random signs, flattened; neighbours in a row are opposite, so usual images have none."""
    channels, rows, columns = shape
    half = torch.randn(count, channels, rows, columns // 2, generator=torch.Generator().manual_seed(seed)).sign()
    return torch.stack((half, -half), -1).flatten(1)


class OfTheNetwork(Masked):
    """A model with a network whose own gradient the attacker uses."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def opened(self, x: Tensor) -> Tensor:
        """Return the network's logits."""
        logits: Tensor = self.net(x)
        return logits


class Behind(Masked):
    """A network behind a change of the image; the attacker's backward pass skips the change."""

    def __init__(self, net: nn.Module, change: Change) -> None:
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the changed images."""
        logits: Tensor = self.net(self.change(x))
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the same logits with the gradient of an unchanged image."""
        logits: Tensor = self.net(x + (self.change(x) - x).detach())
        return logits


def blurred(x: Tensor, side: int) -> Tensor:
    """Average over a small square."""
    return F.avg_pool2d(F.pad(x, (side // 2,) * 4, mode="replicate"), side, 1)
