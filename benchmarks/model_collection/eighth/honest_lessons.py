"""Honest networks of known design that were trained in unusual ways; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import SYMBOLS
from benchmarks.model_collection.networks import convolutions, plain
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.seventh.honest_networks import features, one
from benchmarks.model_collection.sixth.honest_parts import filters


class BinaryFilters(nn.Conv2d):
    """Filters of weights -1 and 1 with one scale per channel; the features are real (Rastegari et al. 2016)."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the maps; in training the signs pass their slope on."""
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        size = weight.abs().mean((1, 2, 3), keepdim=True)
        signs = torch.where(weight > 0, size, -size).detach()
        used = signs + weight - weight.detach() if self.training else signs
        return F.conv2d(h, used, None, self.stride, self.padding)


def binary(channels: int, classes: int) -> nn.Module:
    """Usual first and last layers, binary ones between."""
    layers: list[nn.Module] = [filters(channels, 12)]
    for before, after in ((12, 24), (24, 24)):
        layers += [BinaryFilters(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, read_out(classes, 24))


class RoundedInTraining(nn.Module):
    """Rounds features to 16 levels while it is trained, and not at all in use (Jacob et al. 2018)."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the features."""
        h = F.relu(h)
        if not self.training:
            return h
        step = h.detach().amax() / 15 + 1e-6
        return h + ((h / step).round() * step - h).detach()


def small_slopes(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss plus its squared slope by the image (Drucker and Le Cun 1992)."""
    x = x.clone().requires_grad_(True)
    loss = F.cross_entropy(net(x), y, reduction="sum")
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    return (loss + 0.3 * slope.abs().flatten(1).sum(1).square().sum() / 100) / len(x)


class Concepts(nn.Module):
    """Seven named parts are seen first, and only their probabilities decide (Koh et al. 2020)."""

    def __init__(self, body: nn.Module, classes: int) -> None:
        super().__init__()
        self.body, self.last = body, nn.Linear(7, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the parts."""
        parts = 2 * torch.as_tensor(self.body(x)).sigmoid() - 1
        logits: Tensor = 3 * self.last(parts)
        return logits


def named_parts(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of the classes plus that of the segments."""
    wanted = torch.tensor([[float(letter in symbol) for letter in "abcdefg"] for symbol in SYMBOLS])
    seen = torch.as_tensor(net.get_submodule("body")(x))
    return plain(net, x, y) + 3 * F.binary_cross_entropy_with_logits(seen, wanted[y])


class ClassMeans(nn.Module):
    """Minus distances to the mean unit feature of each class, which training collects (Mensink et al. 2013)."""

    def __init__(self, body: nn.Module, values: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("means", torch.zeros(classes, values))
        self.means: Tensor

    def unit(self, x: Tensor) -> Tensor:
        """Return features of length one."""
        return F.normalize(self.body(x), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the negative squared distances."""
        return -8 * (self.unit(x)[:, None] - self.means).square().sum(2)


def contrasted(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return how badly images find those of their class in the batch (Khosla et al. 2020); the means follow."""
    assert isinstance(net, ClassMeans)
    h = net.unit(x)
    with torch.no_grad():
        for label in sorted(set(y.tolist())):
            net.means[label] = 0.9 * net.means[label] + 0.1 * h[y == label].mean(0)
    own = torch.eye(len(y), dtype=torch.bool)
    likeness = (h @ h.T / 0.2).masked_fill(own, -1e4).log_softmax(1)
    same = (y[:, None] == y) & ~own
    return -((likeness * same).sum(1) / same.sum(1).clamp(min=1)).mean()


class Stages(nn.Module):
    """Layers with an answer each; no slope of training passes from one to the one before (Belilovsky et al. 2019)."""

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList((filters(channels, width, 2), filters(width, width), filters(width, width, 2)))
        self.answers = nn.ModuleList(read_out(classes, width) for _ in range(3))

    def apart(self, x: Tensor) -> list[Tensor]:
        """Return the logits after each layer, each layer cut off from the one before."""
        h, answers = x, []
        for layer, answer in zip(self.layers, self.answers, strict=True):
            h = layer(h.detach())
            answers.append(answer(h))
        return answers

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after the last layer, with its whole slope."""
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.answers[2](x)
        return logits


def one_by_one(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the sum of the losses of the layers."""
    assert isinstance(net, Stages)
    return torch.stack([F.cross_entropy(answer, y) for answer in net.apart(x)]).sum()


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in TRAININGS]


TRAININGS: Final[list[tuple[Any, ...]]] = [
    ("binary filters", "cifar10 animals", 10, lambda: binary(3, 2), plain, 3),
    ("rounded in training only", "symbols 10", 8, lambda: convolutions(1, 10, RoundedInTraining)),
    ("small slopes in training", "textures", 20, lambda: convolutions(3, 4, nn.Softplus), small_slopes),
    ("concepts before classes", "symbols 16", 10, lambda: Concepts(features(1, 7, nn.SiLU), 16), named_parts),
    ("contrasted classes", "symbols 11", 10, lambda: ClassMeans(features(1, 24), 24, 11), contrasted),
    ("layers trained one by one", "cifar10 five groups", 1.5, lambda: Stages(3, 5), one_by_one),
]  # fmt: skip
