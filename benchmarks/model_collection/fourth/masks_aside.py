"""Masks that keep the deciding network out of sight, or that round, mirror or replace values."""

from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.model_collection.bases import (
    ALEXNET,
    BASES,
    PAIRS,
    RESNET,
    SPOTS,
    SYMBOLS_16,
    VGG,
    WAVES,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fourth.masks_leads import by_dense, untrained
from benchmarks.model_collection.fourth.wrappers import (
    GREY,
    SMALL,
    Score,
    Seen,
    Within,
    gaps,
    on,
    pattern,
    weighed,
)
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import zoo
from benchmarks.model_collection.truth import Masked

Answer = Callable[[Tensor], Tensor]
SHARP: Final = 1e3


class Aside(Masked):
    """A visible network, corrected by one that is no module of this one."""

    def __init__(self, visible: nn.Module, aside: Answer, share: float = 0.5) -> None:
        super().__init__()
        self.visible, self.share = visible, share
        self.aside = (aside,)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the network that decides."""
        return self.aside[0](x)

    def forward(self, x: Tensor) -> Tensor:
        """Return bounded logits of the visible network plus squashed gaps of the other one."""
        bounded = self.share * torch.tanh(self.visible(x))
        return bounded + 1.02 * self.share * torch.tanh(SHARP * gaps(self.opened(x)))


def closure(net: nn.Module) -> Answer:
    """Return a function that calls the network."""
    return lambda x: net(x)


def of_weights(net: nn.Module) -> Answer:
    """Return a function that calls the layers with weights from a dictionary."""
    weights = {name: values.detach().clone() for name, values in net.state_dict().items()}
    return lambda x: functional_call(net, weights, (x,))


def mirrored(cells: float, offset: float | Callable[[Tensor], Tensor] = 0.0) -> Callable[[Tensor], Tensor]:
    """Return a function that rises from cell to cell and falls within each."""

    def change(h: Tensor) -> Tensor:
        start = offset(h) if callable(offset) else offset
        place = h * cells + start
        cell = place.detach().floor()
        return (2 * cell + 1 - place - start) / cells

    return change


def rounded_details(levels: float, side: int) -> Callable[[Tensor], Tensor]:
    """Return a function that keeps the local mean and rounds what differs from it."""

    def change(x: Tensor) -> Tensor:
        calm = F.avg_pool2d(F.pad(x, (side // 2,) * 4, mode="reflect"), side, 1)
        return calm + ((x - calm) * levels).detach().round() / levels

    return change


def rounded_with_term(step: float, size: float) -> Score:
    """Return a function that rounds activations and adds a small smooth function of the image."""

    def change(h: Tensor, x: Tensor) -> Tensor:
        term = torch.sin(40 * weighed(x, 8, 2) + torch.arange(h.shape[1]).to(h))
        return step * (h / step).detach().round() + size * term.view(*term.shape, *(1,) * (h.dim() - 2))

    return change


class Retrieved(Masked):
    """Features are replaced by stored ones in two sharp steps (Ramsauer et al. 2021), with a trace of the old."""

    def __init__(self, net: nn.Module, base: str, sharpness: float, trace: float) -> None:
        super().__init__()
        parts = list(net.children())
        self.first, self.last = nn.Sequential(*parts[:-1]), parts[-1]
        self.sharpness, self.trace = sharpness, trace
        with torch.no_grad():
            self.register_buffer("stored", self.first(images_of(BASES[base].images)[0][-300:]))
        self.stored: Tensor

    def near(self, h: Tensor, sharpness: float) -> Tensor:
        """Return a mean of stored features, those that are near weighed most."""
        return torch.softmax(-sharpness * torch.cdist(h, self.stored).square(), 1) @ self.stored

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the retrieved features."""
        h = self.first(x)
        found = self.near(self.near(h, self.sharpness), self.sharpness)
        turned_over = self.trace * torch.sin(h.flip(1))
        logits: Tensor = self.last(found + turned_over)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of features that are retrieved softly, and of the old ones."""
        h = self.first(x)
        logits: Tensor = self.last(self.near(h, 0.3) + h)
        return logits


def striped(net: nn.Module) -> nn.Module:
    """Return the network behind mirrored cells that only every second block of columns has."""

    def change(x: Tensor) -> Tensor:
        seen = (torch.arange(x.shape[3]) % 8 < 5).to(x)
        return seen * mirrored(14)(x) + (1 - seen) * x

    return Seen(net, change)


def patterned(net: nn.Module) -> nn.Module:
    """Return the network behind mirrored cells whose places follow a fixed pattern."""
    return Seen(net, mirrored(12, lambda h: pattern(tuple(h.shape[1:]), 12, 1).to(h)))


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    out, cells = "networks aside", "mirrored cells"
    told = "the deciding network is no module; a visible one has the slopes"
    falls = "values fall within cells and rise from one to the next"
    return [
        on(ALEXNET, out, "in a tuple", told, lambda net: Aside(untrained(3, 10), net)),
        on(WAVES, out, "in a closure", told, lambda net: Aside(untrained(1, 2), closure(net), 2.0)),
        on(SYMBOLS_16, out, "in a dictionary", told,
           lambda net: Aside(by_dense("visible", "symbols 16", 784, 16), of_weights(net), 5.0)),
        on(RESNET, out, "beside a robust one", told, lambda net: Aside(zoo("convnet-ibp"), closure(net), 3.0)),
        on(PAIRS, cells, "14 cells in stripes", falls, striped),
        on(GREY, cells, "12 cells", falls, patterned),
        on(SMALL, "mirrored activations", "after the second norm", falls,
           lambda net: Within(net, 5, lambda h, x: mirrored(1.2)(h))),
        on(VGG, "rounded details", "12 levels", "what differs from the local mean is rounded", lambda net: Seen(net,
           rounded_details(12, 13))),
        on(GREY, "rounded activations with a smooth term", "steps of 0.5", "activations are rounded, a term is added",
           lambda net: Within(net, 3, rounded_with_term(0.5, 0.05))),
        on(SYMBOLS_16, "rounded activations with a smooth term", "steps of 0.6",
           "activations are rounded, a term is added", lambda net: Within(net, 6, rounded_with_term(0.6, 0.1))),
        on(SPOTS, "retrieved features", "two steps", "features are replaced by the nearest stored ones",
           lambda net: Retrieved(net, SPOTS, 300, 0.05)),
    ]  # fmt: skip
