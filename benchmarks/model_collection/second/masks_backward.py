"""Masks in the backward pass: hooks inside, false slopes, random feedback, batch mates, edited values."""

import copy
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
    PAIRS,
    RESNET,
    ROBUST,
    SPOTS,
    SYMBOLS,
    SYMBOLS_11,
    SYMBOLS_16,
    TEXTURES,
    VGG,
    WAVES,
    masked,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.masks_gradient import Disguised, rewriting
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]
Layer = type[nn.Module] | tuple[type[nn.Module], ...]


class Hooked(Masked):
    """A network whose layers of one type change the gradient that passes them."""

    def __init__(self, net: nn.Module, change: Change, kind: Layer = nn.BatchNorm2d) -> None:
        super().__init__()
        self.plain, self.net = net, copy.deepcopy(net)
        for part in self.net.modules():
            if isinstance(part, kind):
                part.register_forward_hook(partial(hooked, change))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the network without hooks."""
        logits: Tensor = self.plain(x)
        return logits


def hooked(change: Change, part: nn.Module, given: Any, result: Tensor) -> None:
    """Change the gradient of a layer's result."""
    if result.requires_grad:
        result.register_hook(change)  # type: ignore[no-untyped-call]


def next_channel(slope: Tensor) -> Tensor:
    """Move each channel's gradient to the next channel."""
    return slope.roll(1, 1)


def largest_only(slope: Tensor) -> Tensor:
    """Zero all but the largest hundredth of the slopes of each image."""
    size = slope.abs().flatten(1)
    limit = size.topk(max(1, size.shape[1] // 100)).values[:, -1].view(-1, 1, 1, 1)
    return torch.where(slope.abs() >= limit, slope, torch.zeros_like(slope))


def one_sided(slope: Tensor) -> Tensor:
    """Zero the negative slopes."""
    return slope.clamp(min=0)


class Backward(torch.autograd.Function):
    """A function and a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Change, slope: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return the function's value."""
        ctx.save_for_backward(x)
        ctx.slope = slope
        return function(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the invented gradient."""
        return ctx.slope(ctx.saved_tensors[0], slopes[0]), None, None


class FalseSlope(nn.Module):
    """A ReLU that passes the gradient where it is inactive, and stops it where it is active."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the positive part."""
        result: Tensor = Backward.apply(h, F.relu, lambda h, slope: slope * (h <= 0))  # type: ignore[no-untyped-call]
        return result


class BumpSlope(nn.Module):
    """A ReLU with the slope of a narrow bump around zero, as spiking networks have."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the positive part."""
        result: Tensor = Backward.apply(h, F.relu, lambda h, s: s * torch.exp(-(h / 0.05).square()))  # type: ignore[no-untyped-call]
        return result


class Replaced(Masked):
    """A network with some layers replaced by others of the same value."""

    def __init__(self, net: nn.Module, replace: Callable[[nn.Module], nn.Module | None]) -> None:
        super().__init__()
        self.plain, self.net = net, copy.deepcopy(net)
        for parent in list(self.net.modules()):
            for name, child in list(parent.named_children()):
                other = replace(child)
                if other is not None:
                    setattr(parent, name, other)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the network as it was."""
        logits: Tensor = self.plain(x)
        return logits


class Feedback(nn.Module):
    """A convolution whose backward pass uses random weights (feedback alignment, Lillicrap et al. 2016)."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer, self.back = layer, copy.deepcopy(layer).requires_grad_(False)
        drawn = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(layer.weight.numel()))
        self.back.weight.copy_(drawn * layer.weight.detach().std())

    def forward(self, h: Tensor) -> Tensor:
        """Return the layer's value."""
        false = self.back(h)
        result: Tensor = self.layer(h).detach() + (false - false.detach())
        return result


def relus(kind: type[nn.Module]) -> Callable[[nn.Module], nn.Module | None]:
    """Replace every ReLU."""
    return lambda child: kind() if isinstance(child, nn.ReLU) else None


def feedback(child: nn.Module) -> nn.Module | None:
    """Replace every convolution."""
    return Feedback(child) if isinstance(child, nn.Conv2d) else None


def of_batch_mates(net: nn.Module, x: Tensor) -> Tensor:
    """Give each image the gradient of the next one in the batch."""
    z: Tensor = net(x)
    return z.detach() + (z - z.detach()).roll(1, 0)


def edited(net: nn.Module, x: Tensor) -> Tensor:
    """Overwrite the values of a random linear map by the logits, which autograd does not record."""
    with torch.no_grad():
        z: Tensor = net(x)
    weights = torch.randn(x[0].numel(), z.shape[1], generator=torch.Generator().manual_seed(2)).to(x)
    answer = x.flatten(1) @ weights
    answer.data.copy_(z)
    return answer


class InferenceOnly(Masked):
    """Runs the network without recording and scales its logits by a weight that has a gradient."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.scale = net, nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, whose graph ends at the scale."""
        with torch.no_grad():
            z = self.net(x)
        logits: Tensor = self.scale * z
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


class Exhausted(Masked):
    """Its first backward passes are true; later ones have mostly random signs. Its answers never change."""

    def __init__(self, net: nn.Module, passes: int = 3) -> None:
        super().__init__()
        self.net, self.left = net, passes

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return rewriting(self.tired)(self.net, x)

    def tired(self, slope: Tensor) -> Tensor:
        """Return the gradient, or one with a fixed pattern of signs."""
        self.left -= 1
        drawn = torch.rand(slope.shape[1:], generator=torch.Generator().manual_seed(11)).to(slope)
        return slope if self.left >= 0 else torch.where(drawn < 0.5, -slope, slope)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    groups = [masked(family, mask, made, make, bases) for family, mask, made, make, bases in TABLE]
    return [model for models in groups for model in models]


TABLE: Final[list[tuple[str, str, str, Callable[[nn.Module], nn.Module], list[str]]]] = [
    ("hooks inside", "channels moved", "each layer moves its gradient to the next channel", partial(Hooked,
        change=next_channel), [ROBUST, ALEXNET]),
    ("hooks inside", "largest hundredth", "each layer keeps the largest hundredth of its gradient", partial(Hooked,
        change=largest_only), [SYMBOLS]),
    ("hooks inside", "one sign only", "each layer zeroes the negative slopes", partial(Hooked, change=one_sided),
        [SYMBOLS_16, VGG]),
    ("false slopes of ReLU", "inverse", "each ReLU passes the gradient where it is inactive", partial(Replaced,
        replace=relus(FalseSlope)), [VGG, SPOTS]),
    ("false slopes of ReLU", "narrow bump", "each ReLU has the slope of a narrow bump", partial(Replaced,
        replace=relus(BumpSlope)), [ALEXNET, CERTIFIED]),
    ("random feedback", "all convolutions", "convolutions have random weights in the backward pass", partial(Replaced,
        replace=feedback), [MOBILENET, SYMBOLS]),
    ("gradients of batch mates", "next image", "each image has the gradient of the next one", partial(Disguised,
        disguise=of_batch_mates), [WAVES]),
    ("edited values", "linear map", "the values of a random linear map are overwritten by the logits",
        partial(Disguised, disguise=edited), [VGG, PAIRS]),
    ("inference inside", "no graph", "the network is not recorded, only the scale of its logits", InferenceOnly,
        [RESNET, SYMBOLS_11]),
    ("exhausted gradients", "three passes", "after three backward passes the signs are random", Exhausted, [CERTIFIED,
        TEXTURES]),
]  # fmt: skip
