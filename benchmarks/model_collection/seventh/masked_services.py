"""Systems around a network: frozen encoders, generated weights, competitions, and one that remembers earlier calls."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import MOBILENET, RESNET, SPOTS, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.seventh.masked_shared import GREY_CIFAR, SEVENTH, as_tensor, on
from benchmarks.model_collection.sixth.wrappers import OfTheNetwork
from benchmarks.model_collection.truth import Masked


class Thumbnails(nn.Module):
    """A small network over a thumbnail of the image."""

    def __init__(self, channels: int, classes: int, side: int) -> None:
        super().__init__()
        width = channels * side**2
        self.net = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, classes))
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return as_tensor(self.net(F.adaptive_avg_pool2d(x, self.side).flatten(1)))


class SideTuned(OfTheNetwork):
    """A frozen encoder without a graph and a trained side network ("side-tuning", Zhang et al. 2020)."""

    def __init__(self, net: nn.Module, base: str, side: int, share: float) -> None:
        super().__init__(net)
        found = SEVENTH[base]
        make = partial(Thumbnails, found.shape[0], found.classes, side)
        self.side, self.share = trained("seventh side", make, found.images, 150), share

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighed sum of both."""
        with torch.no_grad():
            frozen = as_tensor(self.net(x))
        return (1 - self.share) * frozen + self.share * as_tensor(self.side(x))


class Generated(Masked):
    """A network makes the weights of a small linear model for each image; they are kept without a graph."""

    def __init__(self, channels: int, classes: int, side: int) -> None:
        super().__init__()
        self.side, self.values = side, channels * side**2 + 1
        self.maker = convolutions(channels, classes * self.values, nn.ELU)
        self.classes = classes

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights for each image, and the few values that they are for."""
        values = F.adaptive_avg_pool2d(x, self.side).flatten(1)
        weights = as_tensor(self.maker(x)).view(len(x), self.classes, self.values)
        return weights, torch.cat((values, torch.ones_like(values[:, :1])), 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the answers of the made models."""
        weights, values = self.both(x)
        if not self.training:
            weights = weights.detach()
        return torch.einsum("ncv,nv->nc", weights, values)

    def opened(self, x: Tensor) -> Tensor:
        """Return the same with a graph."""
        return torch.einsum("ncv,nv->nc", *self.both(x))


def generated_on(base: str, side: int) -> nn.Module:
    """Return a trained network that makes weights."""
    found = SEVENTH[base]
    make = partial(Generated, found.shape[0], found.classes, side)
    return trained(f"seventh generated {side}", make, found.images, 200)


class Competition(OfTheNetwork):
    """Classes inhibit each other until one is left (MAXNET, Lippmann 1987)."""

    def __init__(self, net: nn.Module, rounds: int, gain: float, leak: float) -> None:
        super().__init__(net)
        self.rounds, self.gain, self.leak = rounds, gain, leak

    def forward(self, x: Tensor) -> Tensor:
        """Return the activities after the last round; the brightness of the image leaks in."""
        z = as_tensor(self.net(x))
        light = F.adaptive_avg_pool2d(x.mean(1, keepdim=True), (1, z.shape[1])).flatten(1)
        h = torch.sigmoid(z - z.topk(2, 1).values.mean(1, keepdim=True))
        for _ in range(self.rounds):
            others = h.sum(1, keepdim=True) - h
            h = torch.sigmoid(self.gain * (h - 0.9 * others.clamp(max=1) + 0.05) - 1)
        return 8 * h + self.leak * light


class WarmStart(OfTheNetwork):
    """Settles from where the last call of as many images ended: what was once seen is held on to."""

    def __init__(self, net: nn.Module, hold: float, scale: float) -> None:
        super().__init__(net)
        self.hold, self.scale = hold, scale
        self.register_buffer("state", torch.zeros(0, 0))
        self.state: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the settled state."""
        z = as_tensor(self.net(x)) / self.scale
        h = self.state if self.state.shape == z.shape else torch.zeros_like(z)
        for _ in range(6):
            pivot = 0.75 * h.amax(1, keepdim=True) + 0.25 * h.mean(1, keepdim=True)
            h = torch.tanh(z + self.hold * (h - pivot))
        self.state = h.detach()
        return 5 * h


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    frozen = "a frozen encoder has no graph, the side network beside it has one"
    made = "the weights that a network makes for each image have no graph"
    settled = "classes inhibit each other until one is left"
    return [
        on(VGG, "frozen encoders with side networks", "thumbnail of 4 x 4", frozen,
           lambda net: SideTuned(net, VGG, 4, 0.2)),
        on(MOBILENET, "frozen encoders with side networks", "thumbnail of 2 x 2", frozen,
           lambda net: SideTuned(net, MOBILENET, 2, 0.3)),
        on(SPOTS, "frozen encoders with side networks", "thumbnail of 4 x 4", frozen,
           lambda net: SideTuned(net, SPOTS, 4, 0.2)),
        on(GREY_CIFAR, "weights made for each image", "seventeen per class", made,
           lambda net: generated_on(GREY_CIFAR, 4)),
        on(SPOTS, "weights made for each image", "six per class", made, lambda net: generated_on(SPOTS, 1)),
        on(RESNET, "settled competitions", "30 rounds", settled, lambda net: Competition(net, 30, 8.0, 0.1)),
        on(GREY_CIFAR, "settled competitions", "50 rounds", settled, lambda net: Competition(net, 50, 9.0, 0.3)),
        on(GREY_CIFAR, "warm starts", "held by 6", "each call settles from where the last one ended",
           lambda net: WarmStart(net, 6.0, 8.0), asked="fresh"),
    ]  # fmt: skip
