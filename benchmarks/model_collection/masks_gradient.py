"""Masks that leave the outputs alone and change the gradient: detached parts, rewritten slopes, decoys, NaN."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    CERTIFIED,
    MOBILENET,
    RESNET,
    ROBUST,
    SYMBOLS,
    SYMBOLS_11,
    SYMBOLS_16,
    TEXTURES,
    VGG,
    masked,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import zoo
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]
Forward = Callable[[nn.Module, Tensor], Tensor]


class Disguised(Masked):
    """A network whose forward pass is written so that its gradient is wrong; the attacker asks the network."""

    def __init__(self, net: nn.Module, disguise: Forward) -> None:
        super().__init__()
        self.net, self.disguise = net, disguise

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's logits."""
        return self.disguise(self.net, x)

    def opened(self, x: Tensor) -> Tensor:
        """Return the same logits with their true gradient."""
        logits: Tensor = self.net(x)
        return logits


class Rewritten(torch.autograd.Function):
    """The identity, with another backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Change) -> Tensor:
        """Return x."""
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the changed gradient."""
        return ctx.change(slopes[0]), None


def rewriting(change: Change) -> Forward:
    """Change the gradient on its way to the pixels."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        logits: Tensor = net(Rewritten.apply(x, change))  # type: ignore[no-untyped-call]
        return logits

    return forward


def pattern(slope: Tensor) -> Tensor:
    """Return uniform numbers, the same for every image of this shape."""
    return torch.rand(slope.shape[1:], generator=torch.Generator().manual_seed(0)).to(slope)


def mostly_random_signs(slope: Tensor) -> Tensor:
    """Flip the sign of a fixed random half among 90 % of the pixels."""
    return torch.where(pattern(slope) < 0.45, -slope, slope)


def rescaled(slope: Tensor) -> Tensor:
    """Scale each pixel by a power of ten between -4 and 4, and flip a third."""
    drawn = pattern(slope)
    return slope * 10 ** (8 * drawn - 4) * torch.where(drawn * 30 % 3 < 1, -1.0, 1.0).to(slope)


def weakest_only(slope: Tensor) -> Tensor:
    """Zero all but the weakest half of the slopes."""
    size = slope.abs().flatten(1)
    return torch.where(slope.abs() <= size.median(1).values.view(-1, 1, 1, 1), slope, torch.zeros_like(slope))


def rotated(slope: Tensor) -> Tensor:
    """Turn the gradient's picture by 90 degrees."""
    return slope.rot90(1, (2, 3))


def blurred(slope: Tensor) -> Tensor:
    """Average the gradient over 9 x 9 pixels."""
    return F.avg_pool2d(slope, 9, 1, 4)


def flipped(slope: Tensor) -> Tensor:
    """Turn the gradient round."""
    return -slope


def fresh_signs(slope: Tensor) -> Tensor:
    """Multiply by signs drawn anew in each backward pass; a fifth of them keep theirs."""
    signs = torch.where(torch.rand_like(slope) < 0.5, -1.0, 1.0).to(slope)
    return slope * torch.where(torch.rand_like(slope) < 0.2, torch.ones_like(signs), signs)


def overflowing(slope: Tensor) -> Tensor:
    """Multiply by 1e38, which overflows."""
    return slope * 1e38 * 1e8


def partly(mask: Callable[[Tensor], Tensor]) -> Forward:
    """Detach the pixels where the mask is 0."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        open_part = mask(x).to(x)
        logits: Tensor = net(x * open_part + x.detach() * (1 - open_part))
        return logits

    return forward


def patches(x: Tensor) -> Tensor:
    """Return a checkerboard of 4 x 4 patches, three quarters of it 0."""
    down, across = torch.meshgrid(torch.arange(x.shape[2]) // 4 % 2, torch.arange(x.shape[3]) // 4 % 2, indexing="ij")
    return (down * across)[None, None]


def one_channel(x: Tensor) -> Tensor:
    """Return 1 for the last channel."""
    return (torch.arange(x.shape[1]) == x.shape[1] - 1).view(1, -1, 1, 1)


def border(x: Tensor) -> Tensor:
    """Return 1 on the outer pixels only."""
    inside = torch.zeros(1, 1, *x.shape[2:])
    inside[..., 6:-6, 6:-6] = 1
    return 1 - inside


def winner_only(net: nn.Module, x: Tensor) -> Tensor:
    """Detach all logits but the winner's."""
    z: Tensor = net(x)
    return torch.where(F.one_hot(z.argmax(1), z.shape[1]).bool(), z, z.detach())


def losers_only(net: nn.Module, x: Tensor) -> Tensor:
    """Detach the winner's logit and all but two of the others."""
    z: Tensor = net(x)
    shown = z.argsort(1)[:, :2]
    return torch.where(torch.zeros_like(z).scatter(1, shown, 1).bool(), z, z.detach())


def of_another(name: str) -> Forward:
    """Show the values of this network and the gradient of another."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        decoy = zoo(name)(x).roll(1, 1)
        logits: Tensor = net(x).detach() + decoy - decoy.detach()
        return logits

    return forward


def in_training_code(net: nn.Module, x: Tensor) -> Tensor:
    """Answer calls that record a graph with shuffled classes."""
    z: Tensor = net(x)
    if torch.is_grad_enabled() and z.requires_grad:
        return z.detach() + 0.5 * (z - z.detach()).roll(3, 1)
    return z


def unused_branch(limit: float) -> Forward:
    """Choose by torch.where between x and a root that is NaN exactly where it is not chosen."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        logits: Tensor = net(torch.where(x > limit, x + 0 * torch.sqrt(x - limit), x))
        return logits

    return forward


def for_bright_images(disguise: Forward) -> Forward:
    """Disguise only the images of at least middle brightness."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        bright = (x.mean((1, 2, 3)) > 0.45)[:, None]
        honest: Tensor = net(x)
        return torch.where(bright, disguise(net, x), honest)

    return forward


def for_even_classes(disguise: Forward) -> Forward:
    """Disguise only the images that the network takes for a class of even number."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        honest: Tensor = net(x)
        return torch.where((honest.argmax(1) % 2 == 0)[:, None], disguise(net, x), honest)

    return forward


def detached(net: nn.Module, x: Tensor) -> Tensor:
    """Detach the image."""
    logits: Tensor = net(x.detach())
    return logits + 0 * x.flatten(1).sum(1, keepdim=True)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        model
        for family, mask, made, disguise, bases in TABLE
        for model in masked(family, mask, made, partial(Disguised, disguise=disguise), bases)
    ]


TABLE: Final[list[tuple[str, str, str, Forward, list[str]]]] = [
    ("detached pixels", "patches detached", "three quarters of the patches have no gradient", partly(patches), [ROBUST,
        SYMBOLS_11]),
    ("detached pixels", "two channels detached", "only one colour channel has a gradient", partly(one_channel),
        [ROBUST, TEXTURES]),
    ("detached pixels", "centre detached", "only the border has a gradient", partly(border), [CERTIFIED]),
    ("detached logits", "winner's gradient only", "all logits but the winner's are detached", winner_only, [ROBUST,
        SYMBOLS_16]),
    ("detached logits", "two losers' gradients only", "only the two lowest logits have a gradient", losers_only,
        [RESNET]),
    ("rewritten gradient", "most signs random", "the gradient's signs are random on 90 % of the pixels",
     rewriting(mostly_random_signs), [ROBUST, SYMBOLS]),
    ("rewritten gradient", "rescaled", "each pixel's slope is scaled by up to 1e4, a third flipped",
        rewriting(rescaled), [VGG, ROBUST]),
    ("rewritten gradient", "weakest half", "only the weakest half of the slopes remains", rewriting(weakest_only),
        [ROBUST]),
    ("rewritten gradient", "flipped", "the gradient has the wrong sign", rewriting(flipped), [ALEXNET]),
    ("moved gradient", "rotated", "the gradient is rotated by 90 degrees", rewriting(rotated), [MOBILENET]),
    ("moved gradient", "blurred", "the gradient is blurred over 9 x 9 pixels", rewriting(blurred), [ROBUST]),
    ("noise in the backward pass", "fresh signs", "the backward pass draws most signs at random",
        rewriting(fresh_signs), [ROBUST, SYMBOLS]),
    ("overflow in the backward pass", "overflow", "the gradient overflows to infinity", rewriting(overflowing), [VGG,
        TEXTURES]),
    ("gradient of another network", "decoy gradient", "the gradient is that of another network", of_another(MOBILENET),
        [VGG, ROBUST]),
    ("other answers while a graph is recorded", "shuffled in training code",
        "calls that record a graph get other slopes",
     in_training_code, [VGG, SYMBOLS_16]),
    ("NaN in torch.where", "root at dark pixels", "the branch of torch.where that is not chosen is NaN at dark pixels",
     unused_branch(0.05), [VGG, SYMBOLS]),
    ("NaN in torch.where", "root below the middle",
        "the branch of torch.where that is not chosen is NaN at most pixels",
     unused_branch(0.5), [ROBUST]),
    ("lies on some images", "bright images detached", "images of some brightness have no gradient",
     for_bright_images(detached), [ROBUST, VGG]),
    ("lies on some images", "even classes flipped", "images of half the classes have a flipped gradient",
     for_even_classes(rewriting(flipped)), [ROBUST]),
    ("lies on some images", "even classes misled", "images of half the classes have mostly random signs",
     for_even_classes(rewriting(mostly_random_signs)), [RESNET]),
]  # fmt: skip
