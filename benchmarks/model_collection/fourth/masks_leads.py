"""Masks after the network: the lead of the winner is squashed, and the slopes come from something else."""

from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    CERTIFIED,
    MOBILENET,
    ROBUST,
    SPOTS,
    SYMBOLS,
    SYMBOLS_11,
    WAVES,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fourth.wrappers import ANIMALS, LARGE, SIX, Scored, gaps, leads, on, weighed
from benchmarks.model_collection.networks import convolutions, perceptron, trained

FAR: Final = 60.0


def untrained(channels: int, outputs: int, seed: int = 3) -> nn.Module:
    """Return a small network with fixed random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return convolutions(channels, outputs, nn.Tanh).eval().requires_grad_(False)


def by_brightness(z: Tensor, x: Tensor) -> Tensor:
    """Return squashed gaps times a smooth function of the image."""
    return torch.tanh(FAR * gaps(z)) * (2 + torch.sin(3 + 6 * weighed(x, 1, 8)) + x.std((1, 2, 3))[:, None])


class ByOther(nn.Module):
    """Squashed gaps times the confidence of another network."""

    def __init__(self, other: nn.Module, sharpness: float) -> None:
        super().__init__()
        self.other, self.sharpness = other, sharpness

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the products."""
        sure = self.other(x.to(z)).softmax(1).amax(1, keepdim=True)
        products: Tensor = torch.erf(self.sharpness * gaps(z)) * (1 + 3 * sure)
        return products


class ByDetector(nn.Module):
    """Compressed logits times the certainty of a detector that the image is a usual one."""

    def __init__(self, detector: nn.Module, steepness: float = 3e3) -> None:
        super().__init__()
        self.detector, self.steepness = detector, steepness

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the products."""
        far = self.steepness * gaps(z)
        usual: Tensor = torch.sigmoid(4 * self.detector(x)[:, :1])
        return far / (1 + far.abs()) * (1 + 4 * usual)


class BoundedLogits(nn.Module):
    """Adds the bounded logits of a second network to squashed gaps; the bound is too small to change the winner."""

    def __init__(self, second: nn.Module, size: float = 0.9) -> None:
        super().__init__()
        self.second, self.size = second, size

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the sums."""
        sums: Tensor = torch.atan(1e7 * gaps(z)) + self.size * torch.tanh(self.second(x))
        return sums


class LoudMember(nn.Module):
    """The sum with other members, which speak much more quietly."""

    def __init__(self, members: list[nn.Module], loudness: float) -> None:
        super().__init__()
        self.members, self.loudness = nn.ModuleList(members), loudness

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the sums."""
        quiet = torch.stack([member(x).log_softmax(1) for member in self.members]).mean(0)
        return self.loudness * torch.tanh(30 * gaps(z)) + quiet.clamp(min=-20)


def where_sure(z: Tensor, x: Tensor, limit: float) -> Tensor:
    """Return the logits, or where their energy is above a limit, squashed gaps and a smooth function of the image."""
    energy = z.logsumexp(1, keepdim=True)
    kept = limit * torch.tanh(1e3 * gaps(z)) * (1 + weighed(x, 5, 6).square())
    return torch.where(energy > limit, kept, z)


def equal_leads(z: Tensor, x: Tensor) -> Tensor:
    """Return logits that are scaled such that the winner always leads by 4, unless it hardly leads at all."""
    return 4 * gaps(z) / leads(z).clamp(min=1e-6) * (1 + 0.1 * weighed(x, 2, 8).tanh())


def sparse(z: Tensor, x: Tensor, sharpness: float) -> Tensor:
    """Return the closest probabilities to the scaled logits (sparsemax, Martins and Astudillo 2016)."""
    z = sharpness * z
    ordered = z.sort(1, descending=True).values
    sums = ordered.cumsum(1) - 1
    ranks = torch.arange(1, z.shape[1] + 1).to(z)
    count = (ranks * ordered > sums).sum(1, keepdim=True)
    return (z - sums.gather(1, count - 1) / count).clamp(min=0)


def factor_of_one(z: Tensor, x: Tensor) -> Tensor:
    """Return the logits times the ratio of a steep term to its equal, which is held fixed."""
    steep = 3e4 * weighed(x, 9, 3)
    return z * torch.exp(steep - steep.detach())


def by_dense(name: str, images: str, values: int, classes: int) -> nn.Module:
    """Return a dense network for the same images."""
    return trained(f"latest {name}", partial(perceptron, values, classes, nn.Tanh, 48), images, 150)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        on(ALEXNET, "leads times a smooth factor", "brightness", "squashed gaps times a function of the image",
           lambda net: Scored(net, by_brightness)),
        on(SYMBOLS, "leads times a smooth factor", "other network", "squashed gaps times another network's confidence",
           lambda net: Scored(net, ByOther(untrained(1, 4), 40))),
        on(ANIMALS, "leads times a smooth factor", "in float64", "squashed gaps times another network's confidence",
           lambda net: Scored(InDouble(net), ByOther(untrained(3, 3).double(), 60))),
        on(CERTIFIED, "scale of a detector", "usual images", "compressed gaps times the certainty of a detector",
           lambda net: Scored(net, ByDetector(untrained(3, 1)))),
        on(ROBUST, "bounded logits of a second network", "second network", "bounded logits are added to squashed gaps",
           lambda net: Scored(net, BoundedLogits(untrained(3, 10)))),
        on(SPOTS, "bounded logits of a second network", "dense network", "bounded logits are added to squashed gaps",
           lambda net: Scored(net, BoundedLogits(by_dense("bounded", "spots", 1280, 20)))),
        on(SYMBOLS_11, "loud members", "dense members", "the member that decides is saturated, the others are quiet",
           lambda net: Scored(net, LoudMember([by_dense("quiet", "symbols 11", 784, 11)], 40))),
        on(SIX, "loud members", "random members", "the member that decides is saturated, the others are quiet",
           lambda net: Scored(net, LoudMember([untrained(3, 6, 7), untrained(3, 6, 8)], 25))),
        on(MOBILENET, "sure answers only", "energy above 8", "squashed gaps where the energy is high",
           lambda net: Scored(net, partial(where_sure, limit=8.0))),
        on(SPOTS, "sure answers only", "energy above 5", "squashed gaps where the energy is high",
           lambda net: Scored(net, partial(where_sure, limit=5.0))),
        on(WAVES, "leads of equal size", "lead of 4", "logits are divided by the winner's lead",
           lambda net: Scored(net, equal_leads)),
        on(LARGE, "sparse probabilities", "sparsemax", "probabilities by sparsemax of sharpened logits",
           lambda net: Scored(net, partial(sparse, sharpness=1.0))),
        on(ALEXNET, "factor of one", "steep ratio", "logits times the ratio of two equal terms, one held fixed",
           lambda net: Scored(net, factor_of_one)),
    ]  # fmt: skip


class InDouble(nn.Module):
    """A network in float64."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net.double()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits in float64."""
        logits: Tensor = self.net(x.double())
        return logits
