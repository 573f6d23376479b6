"""What the masked models of the fifth part share: bases with small robust networks, fixed patterns, gates."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from benchmarks.model_collection.bases import SYMBOLS, SYMBOLS_11, SYMBOLS_16, TEXTURES, WAVES, Base
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fourth.wrappers import FURTHER
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.truth import Masked

Answer = Callable[[Tensor], Tensor]
Gate = Callable[[Tensor], Tensor]
"""From images to one value each, above 0 where the gate is open; about -1 at usual images."""

STEPS: Final = 250


def robust(name: str) -> Base:
    """Return a base with a network that was trained adversarially at the base's radius."""
    base = FURTHER[name]
    make = partial(convolutions, base.shape[0], base.classes)
    load = partial(trained, "newest robust", make, base.images, STEPS, base.eps)
    return Base(load, base.images, base.classes, base.shape, base.eps)


OF_PART: Final[dict[str, Base]] = {
    **FURTHER,
    **{f"robust {name}": robust(name) for name in (SYMBOLS, SYMBOLS_11, SYMBOLS_16, TEXTURES, WAVES)},
}


class Gated(Masked):
    """A network in whose place a hidden one answers where a gate is open."""

    def __init__(self, net: nn.Module, hidden: Answer, gate: Gate) -> None:
        super().__init__()
        self.net, self.hidden, self.gate = net, hidden, gate

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one of the two."""
        return torch.where(self.gate(x)[:, None] > 0, self.hidden(x), self.net(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return a soft mixture, in which only the gate and the hidden network have slopes."""
        share = torch.sigmoid(3 * self.gate(x))[:, None]
        mixture: Tensor = share * self.hidden(x) + (1 - share) * self.net(x).detach()
        return mixture


def differences(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return a fixed pattern of random signs, of which neighbours in a row are opposite."""
    channels, rows, columns = shape
    half: Tensor = torch.randn(channels, rows, columns // 2, generator=torch.Generator().manual_seed(seed)).sign()
    signs: Tensor = torch.stack((half, -half), -1).flatten(2)
    return signs


def along(x: Tensor, seeds: range, eps: float) -> Tensor:
    """Return how far each image lies along fixed patterns; a change by eps along one pattern adds 1."""
    patterns = torch.stack([differences(tuple(x.shape[1:]), seed) for seed in seeds]).to(x)
    places: Tensor = x.flatten(1) @ patterns.flatten(1).T / (eps * x[0].numel())
    return places


def on(base: str, family: str, mask: str, made: str, make: Callable[[nn.Module], nn.Module], **settings: Any) -> Entry:
    """Return a masked model on a base."""
    found = OF_PART[base]
    facts = {"images": found.images, "classes": found.classes, "shape": found.shape, "eps": found.eps, **settings}
    return Entry(f"{mask}, {base}", family, "masked", made, lambda: make(found.load()).eval(), **facts)
