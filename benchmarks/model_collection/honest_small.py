"""Honest small networks, trained in seconds: activations, norms, architectures, shapes and dead regions."""

import os
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.honest import honest
from benchmarks.model_collection.networks import (
    Cosine,
    Make,
    Rows,
    SortPairs,
    Square,
    Transformer,
    convolutions,
    linear,
    perceptron,
    trained,
)

CIFAR: Final[dict[str, Any]] = {"images": "cifar10"}
GREY: Final[dict[str, Any]] = {"images": "cifar10 grey 28x28", "shape": (1, 28, 28)}
SYMBOLS: Final[dict[str, Any]] = {"images": "symbols 10", "shape": (1, 28, 28)}
SIXTEEN: Final[dict[str, Any]] = {"images": "symbols 16", "shape": (1, 28, 28), "classes": 16}
ELEVEN: Final[dict[str, Any]] = {"images": "symbols 11", "shape": (1, 28, 28), "classes": 11}
WIDE: Final[dict[str, Any]] = {"eps": 0.1}
"""A radius for the networks for which 8/255 is small."""
TEXTURES: Final[dict[str, Any]] = {"images": "textures", "shape": (3, 16, 16), "classes": 4, "eps": 16 / 255}


class Thresholded(nn.Module):
    """Ignores everything below a threshold: the dark parts of an image are a dead region, truly."""

    def __init__(self, net: nn.Module, threshold: float) -> None:
        super().__init__()
        self.net, self.threshold = net, threshold

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of what lies above the threshold."""
        logits: Tensor = self.net(F.relu(x - self.threshold))
        return logits


class Sparse(nn.Module):
    """A dense network whose first layer rarely responds."""

    def __init__(self, values: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(values, 256), nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.last(F.relu(self.first(x.flatten(1)) - 1.0))
        return logits


class BoundedDistance(nn.Module):
    """Compares with stored patterns; beyond a distance a pattern counts nothing, so far images get the bias."""

    def __init__(self, values: int, classes: int, patterns: int = 64) -> None:
        super().__init__()
        self.patterns = nn.Parameter(torch.rand(patterns, values))
        self.reach = nn.Parameter(torch.full((patterns,), values / 10))
        self.last = nn.Linear(patterns, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = x.flatten(1)
        distance = h.square().sum(1, keepdim=True) - 2 * h @ self.patterns.T + self.patterns.square().sum(1)
        logits: Tensor = self.last(F.relu(self.reach - distance) / 10)
        return logits


def layer_norm(channels: int) -> nn.Module:
    """Normalise over channels and places."""
    return nn.GroupNorm(1, channels)


def no_norm(channels: int) -> nn.Module:
    """Return the identity."""
    return nn.Identity()


def group_norm(channels: int) -> nn.Module:
    """Normalise over groups of channels."""
    return nn.GroupNorm(4, channels)


def instance_norm(channels: int) -> nn.Module:
    """Normalise each channel of each image."""
    return nn.InstanceNorm2d(channels, affine=True)


def pooled(channels: int, classes: int) -> nn.Module:
    """Large filters with maxima in between."""
    first = [nn.Conv2d(channels, 24, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    second = [nn.Conv2d(24, 32, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(4)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, classes))


def separable(channels: int, classes: int) -> nn.Module:
    """Depthwise and pointwise filters."""
    start = [nn.Conv2d(channels, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU6()]
    depthwise = [nn.Conv2d(32, 32, 5, 1, 2, groups=32), nn.BatchNorm2d(32), nn.ReLU6(), nn.Conv2d(32, 64, 1), nn.SiLU()]
    return nn.Sequential(*start, *depthwise, nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(1024, classes))


def deep(values: int, classes: int) -> nn.Module:
    """Eight narrow dense layers with normalisation."""
    hidden = [part for _ in range(8) for part in (nn.Linear(48, 48), nn.LayerNorm(48), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(values, 48), *hidden, nn.Linear(48, classes))


def small(
    family: str, name: str, make: Make, facts: dict[str, Any], steps: int = 200, adversarial: bool = False
) -> Entry:
    """Return a small network trained on the images of `facts`."""
    eps = float(facts.get("eps", 8 / 255)) if adversarial else 0.0
    made = f"trained for {steps} steps on {facts['images']}" + (", adversarially" if adversarial else "")
    return honest(family, name, made, lambda: trained(name, make, facts["images"], steps, eps), **facts)


def entries() -> list[Entry]:
    """Return the small networks."""
    activations = [
        small("activations", f"{activation.__name__}, {facts['images']}", lambda a=activation, c=channels,
            n=classes: convolutions(c, n, a), facts)  # type: ignore[misc]
        for activation, facts, channels, classes in ACTIVATIONS
    ]  # fmt: skip
    norms = [
        small("norms", f"{norm.__name__}, {facts['images']}", lambda m=norm, c=channels, n=classes: convolutions(c, n,
            nn.ReLU, m), facts)  # type: ignore[misc]
        for norm, facts, channels, classes in NORMS
    ]  # fmt: skip
    others = [small(family, name, make, facts, steps, worst) for family, name, make, facts, steps, worst in OTHERS]
    return activations + norms + others


ACTIVATIONS: Final[list[tuple[Any, dict[str, Any], int, int]]] = [
    (nn.ReLU, SIXTEEN, 1, 16), (nn.GELU, SYMBOLS, 1, 10), (nn.SiLU, CIFAR, 3, 10), (nn.Tanh, TEXTURES, 3, 4),
    (nn.Softplus, SYMBOLS, 1, 10), (nn.ELU, ELEVEN, 1, 11), (nn.LeakyReLU, GREY, 1, 10), (nn.Hardswish, TEXTURES, 3, 4),
    (nn.Sigmoid, SYMBOLS, 1, 10), (SortPairs, SYMBOLS, 1, 10), (Square, TEXTURES, 3, 4), (nn.Mish, SIXTEEN, 1, 16),
    (nn.CELU, GREY, 1, 10), (nn.Softsign, ELEVEN, 1, 11),
]  # fmt: skip
NORMS: Final[list[tuple[Callable[[int], nn.Module], dict[str, Any], int, int]]] = [
    (layer_norm, SYMBOLS, 1, 10), (group_norm, CIFAR, 3, 10), (instance_norm, SYMBOLS, 1, 10), (no_norm, SIXTEEN, 1,
        16),
    (layer_norm, TEXTURES, 3, 4), (group_norm, ELEVEN, 1, 11), (no_norm, GREY, 1, 10),
]  # fmt: skip
OTHERS: Final[list[tuple[str, str, Make, dict[str, Any], int, bool]]] = [
    ("linear networks", "linear, symbols", lambda: linear(784, 10), SYMBOLS, 200, False),
    ("linear networks", "linear, cifar10", lambda: linear(3072, 10), CIFAR, 200, False),
    ("dense networks", "dense, symbols", lambda: perceptron(784, 10), SYMBOLS, 200, False),
    ("dense networks", "dense with ELU, 16 symbols", lambda: perceptron(784, 16, nn.ELU), SIXTEEN, 200, False),
    ("dense networks", "dense with tanh, textures", lambda: perceptron(768, 4, nn.Tanh), TEXTURES, 200, False),
    ("dense networks", "dense, cifar10", lambda: perceptron(3072, 10, nn.GELU), CIFAR, 200, False),
    ("attention", "attention, symbols", lambda: Transformer(1, 28, 7, 10), SYMBOLS, 300, False),
    ("attention", "attention, textures", lambda: Transformer(3, 16, 4, 4), TEXTURES, 300, False),
    ("attention", "attention, cifar10", lambda: Transformer(3, 32, 8, 10, 48), CIFAR, 300, False),
    ("recurrent networks", "rows, textures", lambda: Rows(3, 16, 4), TEXTURES, 300, False),
    ("recurrent networks", "rows, symbols", lambda: Rows(1, 28, 16), SIXTEEN, 300, False),
    ("pooling", "maxima, symbols", lambda: pooled(1, 11), ELEVEN, 200, False),
    ("pooling", "separable, textures", lambda: separable(3, 4), TEXTURES, 200, False),
    ("pooling", "maxima, cifar10", lambda: pooled(3, 10), CIFAR, 200, False),
    ("pooling", "separable, 16 symbols", lambda: separable(1, 16), SIXTEEN, 200, False),
    ("width and depth", "4 channels, symbols", lambda: convolutions(1, 10, width=4), SYMBOLS, 200, False),
    ("width and depth", "20 channels, textures", lambda: convolutions(3, 4, width=20), TEXTURES, 200, False),
    ("width and depth", "deep and dense, 11 symbols", lambda: deep(784, 11), ELEVEN, 300, False),
    ("barely trained networks", "20 steps, symbols", lambda: convolutions(1, 10), SYMBOLS, 20, False),
    ("barely trained networks", "30 steps, cifar10", lambda: convolutions(3, 10), CIFAR, 30, False),
    ("cosines", "cosines, textures", lambda: Cosine(convolutions(3, 4), 4), TEXTURES, 200, False),
    ("cosines", "cosines, symbols", lambda: Cosine(convolutions(1, 10), 10), SYMBOLS, 200, False),
    ("small adversarially trained networks", "robust symbols", lambda: convolutions(1, 10), SYMBOLS | WIDE, 300, True),
    ("small adversarially trained networks", "robust textures", lambda: convolutions(3, 4), TEXTURES, 200, True),
    ("small adversarially trained networks", "robust dense symbols", lambda: perceptron(784, 16), SIXTEEN | WIDE, 400,
        True),
    ("small adversarially trained networks", "robust attention", lambda: Transformer(1, 28, 7, 10), SYMBOLS | WIDE,
        300, True),
    ("small adversarially trained networks", "robust cifar10", lambda: convolutions(3, 10), CIFAR, 200, True),
    ("dead regions", "dark parts ignored", lambda: Thresholded(convolutions(1, 10), 0.35), SYMBOLS | WIDE, 200, False),
    ("dead regions", "dark parts ignored, dense", lambda: Thresholded(perceptron(784, 11), 0.35), ELEVEN | WIDE, 200,
        False),
    ("dead regions", "sparse features", lambda: Sparse(784, 10), SYMBOLS | WIDE, 200, False),
    ("dead regions", "bounded distances", lambda: BoundedDistance(784, 10), SYMBOLS | WIDE, 300, False),
]  # fmt: skip


def published() -> list[Entry]:
    """Return the CIFAR-10 networks of the folder named by ASSAY_NETWORKS, whose networks.py has `load` and `REG`."""
    folder = os.environ.get("ASSAY_NETWORKS")
    if not folder:
        return []
    spec = spec_from_file_location("published_networks", Path(folder) / "networks.py")
    if spec is None or spec.loader is None:
        return []
    networks = module_from_spec(spec)
    spec.loader.exec_module(networks)
    return [
        honest("published networks", name, "a published network", lambda name=name: networks.load(name))  # type: ignore[misc]
        for name in networks.REG
        if name.startswith("cifar_")
    ]
