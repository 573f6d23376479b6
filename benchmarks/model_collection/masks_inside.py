"""Masks in every layer: sparse, quantised, pruned or noisy features."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    CERTIFIED,
    RESNET,
    ROBUST,
    SYMBOLS,
    SYMBOLS_11,
    VGG,
    masked,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.truth import Masked

Norm = nn.BatchNorm1d | nn.BatchNorm2d


class Inner(nn.Module):
    """A mask between two layers; `through` skips it in the backward pass, of a random mask with `mean` entirely."""

    def __init__(self, change: Callable[[Tensor], Tensor], mean: bool = False) -> None:
        super().__init__()
        self.change, self.mean, self.through = change, mean, False

    def forward(self, h: Tensor) -> Tensor:
        """Return the masked features; with `mean` and `through`, their mean over draws."""
        if self.through and self.mean:
            return h
        masked_features = self.change(h)
        return h + (masked_features - h).detach() if self.through else masked_features


class Layered(Masked):
    """A network with a mask after every normalisation."""

    def __init__(self, net: nn.Module, mask: Callable[[Norm], Inner], only: str = "", draws: int = 1) -> None:
        super().__init__()
        self.net, self.draws = with_masks(net, mask, only), draws

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits, with every mask skipped in the backward pass."""
        masks = [part for part in self.net.modules() if isinstance(part, Inner)]
        for mask in masks:
            mask.through = True
        logits: Tensor = self.net(x)
        for mask in masks:
            mask.through = False
        return logits


def with_masks(net: nn.Module, mask: Callable[[Norm], Inner], only: str) -> nn.Module:
    """Return a copy with a mask after each normalisation whose name ends as told."""
    made = copy.deepcopy(net)
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d) and name.endswith(only):
                setattr(parent, name, nn.Sequential(child, mask(child)))
    return made


def sparse_around_mean(width: float) -> Callable[[Norm], Inner]:
    """Replace features within `width` deviations of their mean by the mean (MeanSparse, 2024)."""

    def mask(norm: Norm) -> Inner:
        mean, deviation = norm.bias.detach(), norm.weight.detach().abs()

        def change(h: Tensor) -> Tensor:
            shape = (1, -1) + (1,) * (h.dim() - 2)
            centre = mean.view(shape).expand_as(h)
            return torch.where((h - centre).abs() < width * deviation.view(shape), centre, h)

        return Inner(change)

    return mask


def quantised(size: float) -> Callable[[Norm], Inner]:
    """Round features to multiples of their deviation times `size`."""

    def mask(norm: Norm) -> Inner:
        deviation = norm.weight.detach().abs().clamp(min=1e-3)

        def change(h: Tensor) -> Tensor:
            step = size * deviation.view((1, -1) + (1,) * (h.dim() - 2))
            return (h / step).round() * step

        return Inner(change)

    return mask


def straight_through(size: float) -> Callable[[Norm], Inner]:
    """Round features, with a gradient that pretends a slope of 1 near zero and of 0 elsewhere."""

    def mask(norm: Norm) -> Inner:
        inner = quantised(size)(norm).change
        return Inner(lambda h: torch.where(h.abs() < 0.2, h, h.detach()) + (inner(h) - h).detach())

    return mask


def winners(share: float) -> Callable[[Norm], Inner]:
    """Keep the largest features of each image and zero the others (k winners take all)."""

    def change(h: Tensor) -> Tensor:
        flat = h.flatten(1)
        limit = flat.topk(max(1, int(share * flat.shape[1])), 1).values[:, -1:]
        return torch.where(flat >= limit, flat, torch.zeros_like(flat)).view_as(h)

    return lambda norm: Inner(change)


def noisy(size: float) -> Callable[[Norm], Inner]:
    """Add noise of `size` deviations."""

    def mask(norm: Norm) -> Inner:
        deviation = norm.weight.detach().abs()
        return Inner(lambda h: h + size * deviation.view((1, -1) + (1,) * (h.dim() - 2)) * torch.randn_like(h))

    return mask


def pruned(share: float) -> Callable[[Norm], Inner]:
    """Keep features at random, the larger the likelier, and scale them up (stochastic activation pruning)."""

    def change(h: Tensor) -> Tensor:
        flat = h.flatten(1).abs()
        keep = 1 - torch.exp(-flat * flat.shape[1] / share / flat.sum(1, keepdim=True).clamp(min=1e-6)).view_as(h)
        return torch.where(torch.rand_like(h) < keep, h / keep.clamp(min=1e-3), torch.zeros_like(h))

    return lambda norm: Inner(change, mean=True)


def dropped(share: float) -> Callable[[Norm], Inner]:
    """Drop features at random, also at test time."""

    def change(h: Tensor) -> Tensor:
        return h * (torch.rand_like(h) >= share) / (1 - share)

    return lambda norm: Inner(change, mean=True)


def detached_half(norm: Norm) -> Inner:
    """Detach every second feature."""

    def change(h: Tensor) -> Tensor:
        odd = (torch.arange(h.shape[1]) % 8 > 0).view((1, -1) + (1,) * (h.dim() - 2))
        return torch.where(odd, h.detach(), h)

    return Inner(change)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    still = [
        masked(family, name, made, partial(Layered, mask=mask, only=only), bases)
        for family, name, made, mask, only, bases in TABLE
    ]
    drawn = [
        masked(family, name, made, partial(Layered, mask=mask, draws=draws), bases, asked="majority")
        for family, name, made, mask, draws, bases in RANDOM
    ]
    return [model for models in still + drawn for model in models]


TABLE: Final[list[tuple[str, str, str, Callable[[Norm], Inner], str, list[str]]]] = [
    ("MeanSparse", "half a deviation", "features near their mean become the mean", sparse_around_mean(0.5), "",
        [ROBUST, VGG]),
    ("MeanSparse", "0.3 deviations", "features near their mean become the mean", sparse_around_mean(0.3), "",
        [CERTIFIED]),
    ("quantised residual branches", "second norms", "the end of each residual branch is rounded", quantised(0.7),
        "norm2", [RESNET, ROBUST]),
    ("quantised features", "steps of 0.4", "features are rounded in every layer", quantised(0.4), "", [VGG, SYMBOLS]),
    ("straight-through features", "false slopes", "features are rounded, with an invented slope",
        straight_through(0.3), "", [ALEXNET]),
    ("k winners", "a quarter wins", "the largest quarter of the features remains", winners(0.25), "", [VGG,
        SYMBOLS_11]),
    ("detached features", "seven eighths detached", "seven eighths of the channels have no gradient", detached_half,
        "", [ROBUST, SYMBOLS]),
]  # fmt: skip
RANDOM: Final[list[tuple[str, str, str, Callable[[Norm], Inner], int, list[str]]]] = [
    ("noisy features", "0.2 deviations", "noise is added in every layer", noisy(0.2), 8, [VGG, ROBUST]),
    ("pruned features", "random pruning", "features are kept at random, the larger the likelier", pruned(0.3), 1,
        [VGG, ALEXNET]),
    ("dropped features", "dropout of 0.1", "features are dropped at test time", dropped(0.1), 1, [ALEXNET, SYMBOLS]),
]  # fmt: skip
