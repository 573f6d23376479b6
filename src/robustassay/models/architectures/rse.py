"""A network with noise before every convolution (random self-ensemble, Liu et al. 2018, arXiv:1712.00673)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.resnet_ensemble import log_mean
from robustassay.models.architectures.vgg import VGG
from robustassay.registry import register


@register("architecture", "rse")
@dataclass(frozen=True)
class RandomSelfEnsemble:
    """A VGG with noise also at test time; it returns the mean probabilities of `passes` draws.

    The noise has deviation `noise_in` on the normalised image and `noise` before every later convolution.
    """

    depth: int = 16
    width: int = 16
    noise_in: float = 0.2
    noise: float = 0.1
    passes: int = 5

    def __post_init__(self) -> None:
        if self.passes < 1 or min(self.noise_in, self.noise) < 0:
            raise BadRequest("A random self-ensemble needs at least one pass, and noise of deviation 0 or more.")
        VGG(self.depth, self.width)

    @property
    def title(self) -> str:
        """The name in tables: `RSE VGG-16`."""
        return f"RSE {VGG(self.depth, self.width).title}"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to the logarithms of probabilities."""
        quiet = VGG(self.depth, self.width).build(classes)
        layers: list[nn.Module] = []
        deviation = self.noise_in
        for layer in quiet.children():
            if isinstance(layer, nn.Conv2d):
                layers.append(Noise(deviation))
                deviation = self.noise
            layers.append(layer)
        return NoisyNetwork(nn.Sequential(*layers), self.passes)


class NoisyNetwork(nn.Module):
    """One noisy pass per image in training, several with fresh noise at test time."""

    replays = True
    """Every call makes the same operations, and draws on the device."""

    def __init__(self, body: nn.Module, passes: int) -> None:
        super().__init__()
        self.body = body
        self.passes = passes

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of one pass in training, and the logarithm of mean probabilities at test."""
        if self.training:
            logits: Tensor = self.body(x)
            return logits
        return log_mean(torch.stack([self.body(x) for _ in range(self.passes)]))


class Noise(nn.Module):
    """Adds normal noise, from torch's own generator unless `source` is another."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.deviation = deviation
        self.source: torch.Generator | None = None

    def forward(self, h: Tensor) -> Tensor:
        """Return the features with fresh noise."""
        return h + self.deviation * torch.empty_like(h).normal_(generator=self.source)


@contextmanager
def drawing_from(network: nn.Module, source: torch.Generator) -> Iterator[None]:
    """Draw all noise of a network from one generator inside the block."""
    layers = [module for module in network.modules() if isinstance(module, Noise)]
    if not layers:
        raise BadRequest("This network has no noise layers: use an architecture that has some, such as rse.")
    for layer in layers:
        layer.source = source
    try:
        yield
    finally:
        for layer in layers:
            layer.source = None
