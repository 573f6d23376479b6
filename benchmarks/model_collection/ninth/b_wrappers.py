"""Honest models around trained networks: compressed, blended, drawn, with other statistics; nothing is hidden."""

import copy
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import convolutions, zoo
from benchmarks.model_collection.ninth.b_training import Lesson, of_attacked, one
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.sixth.honest_parts import filters


def of_codebook(net: nn.Module, values: int = 16) -> nn.Module:
    """Return the network with each layer's weights replaced by the nearest of a few means (Han et al. 2016)."""
    net = copy.deepcopy(net)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            weights = layer.weight.detach().flatten()
            means = torch.linspace(float(weights.min()), float(weights.max()), values)
            for _ in range(15):
                nearest = (weights[:, None] - means).abs().argmin(1)
                counts = torch.bincount(nearest, minlength=values)
                sums = torch.zeros(values).index_add(0, nearest, weights)
                means = torch.where(counts > 0, sums / counts.clamp(min=1), means)
            layer.weight.data = means[(weights[:, None] - means).abs().argmin(1)].view_as(layer.weight)
    return net.eval()


def other_statistics(net: nn.Module) -> nn.Module:
    """Return the network whose norms have the statistics of paler, noisy images (Schneider et al. 2020)."""
    net = copy.deepcopy(net)
    x, _ = images_of("cifar10")
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None
    net.train()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for part in x[:256].chunk(4):
            net((0.1 + 0.8 * part + 0.03 * torch.randn_like(part)).clamp(0, 1))
    return net.eval()


class Unsure(nn.Module):
    """Random features of unit features; logits shrink where the images of training say little (Liu et al. 2020)."""

    def __init__(self, body: nn.Module, values: int, classes: int, count: int = 128) -> None:
        super().__init__()
        self.body, self.last = body, nn.Linear(count, classes)
        self.register_buffer("directions", 2 * torch.randn(values, count))
        self.register_buffer("phases", 2 * torch.pi * torch.rand(count))
        self.register_buffer("spread", torch.eye(count))
        self.directions: Tensor
        self.phases: Tensor
        self.spread: Tensor

    def features(self, x: Tensor) -> Tensor:
        """Return the random features."""
        return torch.cos(F.normalize(self.body(x), dim=1) @ self.directions + self.phases)

    def forward(self, x: Tensor) -> Tensor:
        """Return the shrunk logits."""
        h = self.features(x)
        logits: Tensor = self.last(h)
        return logits / (1 + torch.pi / 8 * ((h @ self.spread) * h).sum(1, keepdim=True)).sqrt()


def with_spread(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train, then collect the spread of the last layer's weights."""
    assert isinstance(net, Unsure)
    Lesson(150, 8, 2)(net, x, y)
    with torch.no_grad():
        h = net.eval().features(x)
        net.spread.copy_(torch.linalg.inv(torch.eye(h.shape[1]) + h.T @ h / 4))


class Draws(nn.Module):
    """The mean probabilities of networks seen along the end of one training (Maddox et al. 2019)."""

    def __init__(self, net: nn.Module, count: int = 4) -> None:
        super().__init__()
        self.members = nn.ModuleList(copy.deepcopy(net) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithm of the mean probabilities."""
        return torch.stack([member(x).log_softmax(1) for member in self.members]).logsumexp(0)


def drawn(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train the first member, and draw the others from the weights of further steps."""
    assert isinstance(net, Draws)
    member = net.members[0]
    Lesson(120, 8, 2)(member, x, y)
    seen = []
    for _ in range(6):
        Lesson(10, 8, 2, 0.02, 0.0, "sgd")(member, x, y)
        seen.append({name: weight.detach().clone() for name, weight in member.named_parameters()})
    for other in net.members:
        for name, weight in other.named_parameters():
            values = torch.stack([weights[name] for weights in seen])
            weight.data = values.mean(0) + values.std(0) * torch.randn_like(weight)


class Exits(nn.Module):
    """An early and a late answer, blended by how sure the early one is (Teerapittayanon et al. 2016)."""

    def __init__(self, channels: int, classes: int, width: int = 12) -> None:
        super().__init__()
        self.first, self.early = filters(channels, width, 2), read_out(classes, width)
        rest = (filters(width, 2 * width), filters(2 * width, 2 * width, 2))
        self.late = nn.Sequential(*rest, read_out(classes, 2 * width))

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the early and the late answer."""
        h = self.first(x)
        return self.early(h), self.late(h)

    def forward(self, x: Tensor) -> Tensor:
        """Return the blend."""
        early, late = self.both(x)
        sure = (8 * (early.softmax(1).amax(1, keepdim=True) - 0.8)).sigmoid()
        return sure * early + (1 - sure) * late


def at_both(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the losses of the blend and of both answers."""
    assert isinstance(net, Exits)
    early, late = net.both(attacked)
    return of_attacked(net, x, attacked, y) + F.cross_entropy(early, y) / 2 + F.cross_entropy(late, y)


def around(family: str, base: str, eps: float, made: str, make: partial[nn.Module]) -> Entry:
    """Return a changed network of the zoo, at a radius in 255ths."""
    return Entry(f"{family}, {base}", family, "honest", made, make, eps=eps / 255)


def compressed(base: str) -> nn.Module:
    """Return a network of the zoo with weights of a codebook."""
    return of_codebook(zoo(base))


def shifted(base: str) -> nn.Module:
    """Return a network of the zoo with other statistics."""
    return other_statistics(zoo(base))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [
        around("weights of a codebook", "resnet20-alp", 8, "16 values per layer", partial(compressed, "resnet20-alp")),
        around("statistics of other images", "resnet20-pgd", 4, "statistics of pale, noisy images",
               partial(shifted, "resnet20-pgd")),
        one("unsure heads", "symbols 11", 26, lambda: Unsure(convolutions(1, 24), 24, 11), with_spread,
            "trained against 8/255, then a spread of the last weights"),
        one("draws of weights", "symbols 10", 27,
            lambda: Draws(convolutions(1, 10, nn.SiLU, lambda n: nn.GroupNorm(2, n))), drawn,
            "four draws around the end of a training against 8/255"),
        one("exits blended by certainty", "cifar10 24x24", 3, lambda: Exits(3, 10), Lesson(300, 2, 1, loss=at_both)),
    ]  # fmt: skip
