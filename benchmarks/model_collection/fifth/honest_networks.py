"""Honest models: further designs, trainings, and harmless services around networks."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import ALEXNET, MOBILENET, RESNET, ROBUST, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fifth import honest_layers as layers
from benchmarks.model_collection.fifth.masks_checks import features
from benchmarks.model_collection.fourth.honest_networks import FACTS
from benchmarks.model_collection.honest import Around, honest
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import Objective, convolutions, perceptron, plain, trained, worst, zoo
from benchmarks.model_collection.second.smooth_layers import Apply, head

STEPS: Final = 150
BARS: Final = {"bars": (3, (1, 6, 6), 20 / 255)}


class Views(nn.Module):
    """Several views of the image, whose logits are joined."""

    def __init__(self, net: nn.Module, joined: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.joined = net, joined

    def forward(self, x: Tensor) -> Tensor:
        """Return the joined logits."""
        moves = [x, x.flip(3), x.roll(1, 2), x.roll(-1, 3), x.roll((1, 1), (2, 3))]
        return self.joined(torch.stack([torch.as_tensor(self.net(view)) for view in moves]))


def most_confident(z: Tensor) -> Tensor:
    """Return the logits of the view that is most certain of its class."""
    best = z.softmax(2).amax(2).argmax(0)
    return z[best, torch.arange(z.shape[1])]


def trimmed(z: Tensor) -> Tensor:
    """Return the mean over views without the largest and the smallest logit."""
    return z.sort(0).values[1:-1].mean(0)


def levelled(x: Tensor) -> Tensor:
    """Return images whose darkest pixel is 0 and brightest is 1."""
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    return (x - low) / (high - low + 1e-3)


def by_neighbours(x: Tensor) -> Tensor:
    """Return means of neighbours, weighed by how alike they are (Tomasi and Manduchi 1998)."""
    moves = [(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1)]
    moved = torch.stack([x.roll(move, (2, 3)) for move in moves])
    weights = torch.exp(-(moved - x).square().sum(2, keepdim=True) / 0.02)
    return (weights * moved).sum(0) / weights.sum(0)


def scrambled(values: int, seed: int = 5) -> nn.Module:
    """Return a layer that reorders pixels by a key and inverts half of them."""
    draw = torch.Generator().manual_seed(seed)
    order, turned = torch.randperm(values, generator=draw), torch.rand(values, generator=draw) < 0.5
    return Apply(lambda x: torch.where(turned, 1 - x.flatten(1)[:, order], x.flatten(1)[:, order]))


class Discriminants(nn.Module):
    """Classes as normal distributions of the features, with a shared covariance (Fisher 1936)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.features = features(net)
        x, y = images_of("cifar10")
        with torch.no_grad():
            h = self.features(x)
            means = torch.stack([h[y == label].mean(0) for label in range(10)])
            spread = h - means[y]
            precision = torch.linalg.inv(spread.T @ spread / len(h) + 0.01 * torch.eye(h.shape[1]))
            self.register_buffer("weights", means @ precision)
            self.register_buffer("shift", -0.5 * ((means @ precision) * means).sum(1))
        self.weights: Tensor
        self.shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithms of the densities, up to a term that all classes share."""
        densities: Tensor = self.features(x) @ self.weights.T + self.shift
        return densities


class Examples(nn.Module):
    """Logits plus votes of stored examples, weighed smoothly by likeness (Zhang et al. 2022)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        x, y = images_of("cifar10")
        self.net, self.features = net, features(net)
        with torch.no_grad():
            self.register_buffer("stored", F.normalize(self.features(x[-300:]), dim=1))
        self.register_buffer("labels", F.one_hot(y[-300:], 10).float())
        self.stored: Tensor
        self.labels: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        alike = F.normalize(self.features(x), dim=1) @ self.stored.T
        total: Tensor = self.net(x) + torch.exp(-5 * (1 - alike)) @ self.labels / 10
        return total


def saturating(net: nn.Module, size: float) -> nn.Module:
    """Return a network of which every convolution clips its sums, as small accumulators do."""
    parts: list[nn.Module] = []
    for part in net.children():
        parts += [part, nn.Hardtanh(-size, size)] if isinstance(part, nn.Conv2d) else [part]
    return nn.Sequential(*parts)


class HeadInFloat32(nn.Module):
    """A network in bfloat16 behind images in float32; the logits are float32 again."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        with torch.autocast("cpu", torch.bfloat16):
            h: Tensor = self.net(x)
        return h.float()


def with_wrong_labels(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss with a fifth of the labels drawn at random."""
    z = net(x)
    drawn = torch.randint(z.shape[1], y.shape)
    return F.cross_entropy(z, torch.where(torch.rand(y.shape) < 0.2, drawn, y))


def half_adversarial(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the loss at adversarial images and at usual ones, in equal parts."""
    return 0.5 * plain(net, x, y) + 0.5 * plain(net, worst(net, x, y, eps), y)


def one(family: str, images: str, make: Callable[[], nn.Module], objective: Objective = plain) -> Entry:
    """Return one small trained network."""
    classes, shape, eps = {**FACTS, **BARS}[images]
    build = partial(trained, f"newest {family}", make, images, STEPS, objective=objective)
    facts: dict[str, Any] = {"images": images, "classes": classes, "shape": shape, "eps": eps}
    return honest(family, f"{family}, {images}", f"trained for {STEPS} steps on {images}", build, **facts)


def wrapped(family: str, base: str, made: str, make: Callable[[nn.Module], nn.Module]) -> Entry:
    """Return a network of the zoo with a harmless part."""
    return honest(family, f"{family}, {base}", made, lambda: make(zoo(base)))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [
        *(one(*row) for row in DESIGNS),
        *(one(*row) for row in TRAININGS),
        wrapped("most confident views", MOBILENET, "the most certain of five views", lambda net: Views(net,
            most_confident)),
        wrapped("trimmed views", ROBUST, "the mean of views without extremes", lambda net: Views(net, trimmed)),
        wrapped("automatic levels", ALEXNET, "images from 0 to 1", lambda net: Around(net, before=levelled)),
        wrapped("bilateral filters", RESNET, "means of like neighbours", lambda net: Around(net, before=by_neighbours)),
        wrapped("discriminant analysis", VGG, "normal distributions of features", Discriminants),
        wrapped("votes of examples", ALEXNET, "logits plus smooth votes", Examples),
        wrapped("clipped sums", VGG, "sums are clipped at 40", lambda net: saturating(net, 40)),
        wrapped("mixed precision", ROBUST, "bfloat16 inside, float32 outside", HeadInFloat32),
    ]  # fmt: skip


DESIGNS: Final[list[tuple[str, str, Callable[[], nn.Module]]]] = [
    ("implicit layers", "symbols 10", lambda: layers.Implicit(1, 10)),
    ("cellular automata", "textures", lambda: layers.Automaton(3, 4)),
    ("maxima of sums", "symbols 11", lambda: head(11, layers.Morphology(1, 8, 2), nn.BatchNorm2d(8),
        nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), values=256)),
    ("distances as filters", "textures", lambda: head(4, layers.Distances(3, 12), nn.ReLU(), layers.Distances(12, 12),
        nn.ReLU(), values=192)),
    ("two of four experts", "symbols 16", lambda: layers.Routed(1, 16)),
    ("coupled halves", "pairs", lambda: layers.Coupled(1, 100)),
    ("state spaces", "symbols 16", lambda: layers.StateSpace(28, 16)),
    ("residues to words", "symbols 10", lambda: layers.Residues(1, 10)),
    ("scattering", "textures", lambda: layers.Scattering(3, 4)),
    ("interpolated tables", "spots", lambda: convolutions(5, 20, layers.TableActivation)),
    ("fixed masks", "symbols 11", lambda: layers.FixedMasks(1, 11)),
    ("scrambled pixels", "symbols 16", lambda: nn.Sequential(scrambled(784), perceptron(784, 16, nn.SiLU))),
    ("tiny images", "bars", lambda: perceptron(36, 3, nn.Tanh, 16)),
]  # fmt: skip
TRAININGS: Final[list[tuple[str, str, Callable[[], nn.Module], Objective]]] = [
    ("wrong labels", "textures", lambda: convolutions(3, 4), with_wrong_labels),
    ("half adversarial", "waves", lambda: layers.OrderedPooling(1, 2, 36), partial(half_adversarial, eps=12 / 255)),
    ("half adversarial", "symbols 11", lambda: layers.Scattering(1, 11), partial(half_adversarial, eps=10 / 255)),
]  # fmt: skip
