"""Denoising between the layers of a network."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.defenses.defended import Defended, adaptive, draws_random_numbers, naive
from robustassay.defenses.defense import Defense, setting
from robustassay.defenses.median import median_filter
from robustassay.errors import BadRequest, UnknownName
from robustassay.registry import register


def _nonlocal_means(h: Tensor) -> Tensor:
    """Replace every position by a mean over all positions, weighted by their similarity (softmax of dot products)."""
    flat = h.flatten(2)
    alike = torch.softmax(flat.mT @ flat / math.sqrt(flat.shape[1]), 2)
    return (flat @ alike.mT).view_as(h)


def _local_mean(h: Tensor) -> Tensor:
    return F.avg_pool2d(h, 3, 1, 1, count_include_pad=False)


def _local_median(h: Tensor) -> Tensor:
    return median_filter(h, radius=1)


KINDS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "nonlocal": _nonlocal_means,
    "mean": _local_mean,
    "median": _local_median,
}


@final
@register("defense", "feature-denoising")
@dataclass(frozen=True)
class FeatureDenoising(Defense):
    """Blend features with their denoised version after named parts of a trained model.

    Xie et al. 2019, arXiv:1812.03411, train the model with `DenoisingBlock`s inside; this is what can be done to a
    model as it is. `after` names its parts with a + between them; `strength` 1 leaves only the denoised features.
    """

    random = False

    after: str = setting("stage1")
    """Parts of the model after which features are denoised, joined by +."""
    kind: str = setting("mean", among=tuple(KINDS))
    """nonlocal, mean or median."""
    strength: float = setting(0.3, 0, 1)
    """Weight of the denoised features; 1 leaves only them."""

    def defend(self, model: nn.Module) -> "Denoised":
        """Insert the denoising into a copy of the model."""
        inside = model
        for name in filter(None, (part.strip() for part in self.after.split("+"))):
            inside = insert_after(inside, name, Blend(self.kind, self.strength))
        if inside is model:
            raise BadRequest("FeatureDenoising: name the parts to denoise after, such as after=stage1+stage2.")
        return Denoised(self, inside)


@final
class Denoised(Defended):
    """A model with denoising between its layers; all of it is differentiable."""

    def __init__(self, defense: FeatureDenoising, model: nn.Module) -> None:
        super().__init__(draws_random_numbers(model))
        self.defense = defense
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the model with denoising."""
        logits: Tensor = self.model(x)
        return logits

    def differentiable(self, x: Tensor) -> Tensor:
        """Return the same logits."""
        return adaptive(self.model)(x)

    def naive(self, x: Tensor) -> Tensor:
        """Return the logits of the model with denoising switched off, which needs no second copy of the weights."""
        blends = [part for part in self.model.modules() if isinstance(part, Blend)]
        try:
            for blend in blends:
                blend.resting = True
            return naive(self.model)(x)
        finally:
            for blend in blends:
                blend.resting = False

    def extra_repr(self) -> str:
        """Return the settings, which are part of the identity of a run."""
        return repr(self.defense)


@final
class Blend(nn.Module):
    """(1 - strength) h + strength denoised(h)."""

    def __init__(self, kind: str, strength: float) -> None:
        super().__init__()
        self.kind = kind
        self.strength = strength
        self.resting = False

    def forward(self, h: Tensor) -> Tensor:
        """Blend features `[n, channels, height, width]`."""
        return h if self.resting else torch.lerp(h, KINDS[self.kind](h), self.strength)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"kind={self.kind}, strength={self.strength}"


@final
class DenoisingBlock(nn.Module):
    """The trainable block of the paper: denoise, mix the channels, add to the input.

    The mixing starts at zero, as in the paper, so a fresh block changes nothing until it is trained.
    """

    def __init__(self, channels: int, kind: str = "nonlocal") -> None:
        super().__init__()
        if kind not in KINDS:
            raise UnknownName("kind of denoising", kind, KINDS)
        self.kind = kind
        self.mix = nn.Conv2d(channels, channels, 1, bias=False)
        nn.init.zeros_(self.mix.weight)

    def forward(self, h: Tensor) -> Tensor:
        """Return h + mix(denoised(h))."""
        mixed: Tensor = h + self.mix(KINDS[self.kind](h))
        return mixed

    def extra_repr(self) -> str:
        """Return the kind of denoising."""
        return f"kind={self.kind}"


def insert_after(model: nn.Module, name: str, block: nn.Module) -> nn.Module:
    """Return a copy of a model with a block after the named module."""
    model = copy.deepcopy(model)
    parts = dict(model.named_modules())
    if not name or name not in parts:
        raise UnknownName("part of this model", name, [part for part in parts if part])
    owner, _, last = name.rpartition(".")
    setattr(parts[owner], last, nn.Sequential(parts[name], block).train(parts[name].training))
    return model
