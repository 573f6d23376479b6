"""Honest small networks of unusual design or training."""

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.honest import honest
from benchmarks.model_collection.networks import Objective, convolutions, perceptron, plain, trained
from benchmarks.model_collection.second import smooth_networks as smooth
from benchmarks.model_collection.second.hard_networks import body
from benchmarks.model_collection.second.masks_trained import of_source
from benchmarks.model_collection.second.smooth_layers import (
    Apply,
    GlobalFilter,
    Residual,
    SqueezeExcite,
    StandardisedConv,
    head,
)

Make = Callable[[], nn.Module]
STEPS: Final = 150
RADII: Final = {"waves": {"eps": 12 / 255}}
"""At the radius of the masked models, the phases of waves make many local maxima of the loss."""


def smoothed_labels(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of smoothed labels."""
    return F.cross_entropy(net(x), y, label_smoothing=0.2)


def largest_margin(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the multi-class hinge loss."""
    return F.multi_margin_loss(net(x), y, margin=2.0)


def mixed(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of mixed images (Zhang et al. 2018)."""
    share = float(torch.rand(()))
    z = net(share * x + (1 - share) * x.roll(1, 0))
    return share * F.cross_entropy(z, y) + (1 - share) * F.cross_entropy(z, y.roll(1, 0))


def focal(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the focal loss (Lin et al. 2017)."""
    loss = F.cross_entropy(net(x), y, reduction="none")
    return ((1 - torch.exp(-loss)).square() * loss).mean()


def with_noise(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of noisy images."""
    return F.cross_entropy(net(x + 0.1 * torch.randn_like(x)), y)


def flat_slopes(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss plus the size of its input gradient (Ross and Doshi-Velez 2018)."""
    x = x.clone().requires_grad_(True)
    loss = F.cross_entropy(net(x), y)
    (slope,) = torch.autograd.grad(len(x) * loss, x, create_graph=True)
    return loss + 0.5 * slope.square().flatten(1).sum(1).mean()


def maxout(h: Tensor) -> Tensor:
    """Return the larger of two halves of the channels."""
    return torch.maximum(*h.chunk(2, 1))


def gated(h: Tensor) -> Tensor:
    """Return one half of the channels, scaled by the sigmoid of the other."""
    return F.glu(h, 1)


def both_signs(h: Tensor) -> Tensor:
    """Return the positive and the negative part."""
    return torch.cat((F.relu(h), F.relu(-h)), 1)


def shuffled(h: Tensor) -> Tensor:
    """Mix four groups of channels."""
    return h.view(len(h), 4, -1, *h.shape[2:]).transpose(1, 2).flatten(1, 2)


def standardised(x: Tensor) -> Tensor:
    """Return the image with mean 0 and deviation 1."""
    return (x - x.mean((1, 2, 3), keepdim=True)) / (x.std((1, 2, 3), keepdim=True) + 0.05)


def sizes(h: Tensor) -> Tensor:
    """Return smooth absolute values."""
    return (h.square() + 1e-3).sqrt()


def mixer(channels: int, classes: int, patch: int, depth: int = 2) -> nn.Module:
    """Depthwise and pointwise filters over patches (ConvMixer)."""
    blocks = [
        part
        for _ in range(depth)
        for part in (
            Residual(nn.Conv2d(24, 24, 5, 1, 2, groups=24), nn.GELU(), nn.BatchNorm2d(24)),
            nn.Conv2d(24, 24, 1), nn.GELU(), nn.BatchNorm2d(24),
        )
    ]  # fmt: skip
    return head(classes, nn.Conv2d(channels, 24, patch, patch), nn.GELU(), *blocks, values=384)


def residual_dense(values: int, classes: int) -> nn.Module:
    """Dense residual blocks with normalisation."""
    blocks = [Residual(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)) for _ in range(3)]
    return nn.Sequential(nn.Flatten(), nn.Linear(values, 64), *blocks, nn.Linear(64, classes))


def with_bounded_layers(values: int, classes: int) -> nn.Module:
    """Dense layers of spectral norm 1 and a scaled output."""
    layers = [spectral_norm(nn.Linear(values, 96)), nn.ELU(), spectral_norm(nn.Linear(96, 96)), nn.ELU()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(96, classes))


def convolved(channels: int, classes: int, *parts: nn.Module, width: int = 16) -> nn.Module:
    """A first convolution, further parts that keep the width, and a head."""
    return head(classes, nn.Conv2d(channels, width, 3, 1, 1), *parts, values=16 * width)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS] + [one(*row) for row in TRAININGS]


def one(family: str, images: str, make: Make, objective: Objective = plain, eps: float = 0.0) -> Entry:
    """Return one small network, trained adversarially for eps above 0."""
    name = f"{family}, {images}"
    facts: dict[str, Any] = of_source(images, **RADII.get(images, {}))
    made = f"trained for {STEPS} steps on {images}" + (", adversarially" if eps else "")
    return honest(family, name, made, lambda: trained(f"fresh {name}", make, images, STEPS, eps, objective), **facts)


DESIGNS: Final[list[tuple[str, str, Make]]] = [
    ("global filters", "textures", lambda: convolved(3, 4, GlobalFilter(16, 16, 16), nn.GELU())),
    ("global filters", "waves", lambda: convolved(1, 2, GlobalFilter(16, 12, 48), nn.GELU())),
    ("complex numbers", "textures", lambda: smooth.ComplexDense(768, 4)),
    ("Fourier features", "spots", lambda: smooth.FourierFeatures(1280, 20)),
    ("Fourier features", "symbols 10", lambda: smooth.FourierFeatures(784, 10)),
    ("sine networks", "symbols 11", lambda: perceptron(784, 11, lambda: Apply(torch.sin))),
    ("sine networks", "textures", lambda: convolutions(3, 4, lambda: Apply(lambda h: torch.sin(2 * h)))),
    ("soft trees", "spots", lambda: smooth.SoftTrees(5, 20)),
    ("kernel heads", "textures", lambda: smooth.Kernels(3, 4)),
    ("generative heads", "symbols 16", lambda: smooth.Gaussians(1, 16)),
    ("generative heads", "waves", lambda: smooth.Gaussians(1, 2)),
    ("polynomial networks", "spots", lambda: smooth.Products(1280, 20)),
    ("dilated filters", "pairs", lambda: convolved(1, 100, nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 2, 2), nn.ReLU())),
    ("grouped filters", "textures", lambda: convolved(3, 4, Apply(shuffled), nn.Conv2d(16, 16, 3, 2, 1, groups=4),
        nn.BatchNorm2d(16), nn.ReLU())),
    ("squeeze and excite", "spots", lambda: convolved(5, 20, nn.SiLU(), SqueezeExcite(16))),
    ("standardised weights", "symbols 10", lambda: head(10, StandardisedConv(1, 16, 3, 2, 1), nn.GroupNorm(4,
        16), nn.ReLU(), values=256)),
    ("hypernetworks", "waves", lambda: smooth.HyperNetwork(1, 2)),
    ("soft experts", "spots", lambda: smooth.Experts(5, 20)),
    ("gated recurrence", "waves", lambda: smooth.RowReader(nn.GRU, 48, 2)),
    ("gated recurrence", "textures", lambda: smooth.RowReader(nn.LSTM, 48, 4)),
    ("spatial transformers", "spots", lambda: smooth.Aligned(5, 20)),
    ("recomputed layers", "waves", lambda: smooth.Unrolled(1, 2, recompute=True)),
    ("linear attention", "spots", lambda: smooth.LinearAttention(5, 4, 20)),
    ("prototypes", "pairs", lambda: smooth.Prototypes(1, 100)),
    ("points in a plane", "textures", lambda: smooth.Ordinal(3, 4)),
    ("bilinear pooling", "textures", lambda: smooth.Bilinear(3, 4)),
    ("mixers", "textures", lambda: mixer(3, 4, 2)),
    ("residual dense networks", "pairs", lambda: residual_dense(640, 100)),
    ("maxout", "spots", lambda: convolved(5, 20, Apply(maxout), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())),
    ("gated units", "waves", lambda: convolved(1, 2, Apply(gated), nn.Conv2d(8, 16, 3, 2, 1), Apply(torch.tanh))),
    ("both signs", "textures", lambda: convolved(3, 4, Apply(both_signs), nn.Conv2d(32, 16, 3, 2, 1), nn.ReLU())),
    ("standardised images", "spots", lambda: nn.Sequential(Apply(standardised), convolutions(5, 20))),
    ("sizes of responses", "waves", lambda: convolved(1, 2, Apply(sizes))),
    ("bounded layers", "symbols 16", lambda: with_bounded_layers(784, 16)),
    ("weight normalisation", "textures", lambda: nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(768, 64)),
        nn.ReLU(), weight_norm(nn.Linear(64, 4)))),
    ("power means", "spots", lambda: convolved(5, 20, nn.Softplus(), nn.LPPool2d(3.0, 2))),
    ("many classes", "pairs", lambda: convolutions(1, 100)),
    ("two classes", "waves", lambda: convolutions(1, 2, nn.GELU)),
    ("five channels", "spots", lambda: nn.Sequential(body(5), nn.Linear(384, 20))),
]  # fmt: skip
TRAININGS: Final[list[tuple[str, str, Make, Objective, float]]] = [
    ("smoothed labels", "spots", lambda: convolutions(5, 20), smoothed_labels, 0.0),
    ("hinge loss", "textures", lambda: convolutions(3, 4), largest_margin, 0.0),
    ("mixed images", "waves", lambda: convolutions(1, 2), mixed, 0.0),
    ("focal loss", "spots", lambda: convolutions(5, 20), focal, 0.0),
    ("noisy training images", "pairs", lambda: convolutions(1, 100), with_noise, 0.0),
    ("flat slopes", "textures", lambda: convolutions(3, 4, nn.Softplus), flat_slopes, 0.0),
    ("robust unusual networks", "waves", lambda: smooth.RowReader(nn.GRU, 48, 2), plain, 12 / 255),
    ("robust unusual networks", "textures", lambda: mixer(3, 4, 2), plain, 12 / 255),
    ("robust unusual networks", "spots", lambda: smooth.Experts(5, 20), plain, 8 / 255),
]  # fmt: skip
