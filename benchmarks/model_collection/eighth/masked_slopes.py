"""Slopes that were changed for another purpose: reversed, averaged, estimated, drawn as heat maps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    CERTIFIED,
    MOBILENET,
    PAIRS,
    RESNET,
    ROBUST,
    WAVES,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.seventh.masked_kernels import Visible
from benchmarks.model_collection.seventh.masked_shared import (
    SEVENTH,
    as_tensor,
    on,
    same_value,
    with_layers,
)
from benchmarks.model_collection.sixth.wrappers import OfTheNetwork
from benchmarks.model_collection.truth import Masked

Rule = Callable[[Tensor], Tensor]


class Ruled(torch.autograd.Function):
    """Nothing changes on the way forward; a rule changes the slope on the way back."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, rule: Rule) -> Tensor:
        """Return the same values."""
        ctx.rule = rule
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return what the rule makes of the slope."""
        return ctx.rule(slopes[0]), None


class Station(nn.Module):
    """A layer by the function above."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, h: Tensor) -> Tensor:
        """Return the same values."""
        return as_tensor(Ruled.apply(h, self.rule))  # type: ignore[no-untyped-call]


def before(net: nn.Module, rule: Rule) -> nn.Module:
    """Return a model with a rule between the image and the network."""
    return Visible(net, nn.Sequential(Station(rule), net))


def within(net: nn.Module, rule: Rule, kind: type[nn.Module], inside: str = "") -> nn.Module:
    """Return a model with a rule behind every layer of a kind whose path holds the text."""
    return Visible(net, with_layers(net, kind, lambda layer: nn.Sequential(layer, Station(rule)), inside))


def reversed_slope(slope: Tensor) -> Tensor:
    """Return the slope turned round, as training against the domain needs it (Ganin and Lempitsky 2015)."""
    return -slope


def averaged(slope: Tensor) -> Tensor:
    """Return the mean over the call, as if the images were weights that several workers share."""
    return slope.mean(0, keepdim=True).expand_as(slope)


def heat(slope: Tensor) -> Tensor:
    """Return a heat map of the slope: its largest size over the channels, up to 1."""
    sizes = slope.abs().amax(1, keepdim=True)
    return (sizes / (sizes.amax((2, 3), keepdim=True) + 1e-12)).expand_as(slope)


class Inverted(torch.autograd.Function):
    """The negative of an image; the backward pass forgets the sign."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return 1 - x."""
        return 1 - x

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the slope."""
        return slopes[0]


class Negatives(Masked):
    """A network for negatives."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return as_tensor(self.net(as_tensor(Inverted.apply(x))))  # type: ignore[no-untyped-call]

    def opened(self, x: Tensor) -> Tensor:
        """Return the same logits with the right sign of the slope."""
        return as_tensor(self.net(1 - x))


def negatives_on(base: str) -> nn.Module:
    """Return a network that was trained on negatives."""
    found = SEVENTH[base]
    make = partial(Negatives, convolutions(found.shape[0], found.classes, nn.ELU))
    return trained("eighth negatives", make, found.images, 200)


class Engine(torch.autograd.Function):
    """An engine without slopes; differences along a few fixed directions stand for them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, net: nn.Module, directions: Tensor, step: float) -> Tensor:
        """Return the engine's logits."""
        z = as_tensor(net(x)).detach()
        ctx.save_for_backward(x, z, directions)
        ctx.net, ctx.step = net, step
        return z

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the sum of the directions, each times its difference."""
        x, z, directions = ctx.saved_tensors
        total = torch.zeros_like(x)
        with torch.no_grad():
            for direction in directions:
                change = (as_tensor(ctx.net(x + ctx.step * direction)) - z) / ctx.step
                total += (change * slopes[0]).sum(1).view(-1, 1, 1, 1) * direction
        return total, None, None, None


class Differences(OfTheNetwork):
    """A network in the engine above."""

    def __init__(self, net: nn.Module, base: str, count: int, step: float) -> None:
        super().__init__(net)
        draw = torch.Generator().manual_seed(81)
        self.register_buffer("directions", torch.randn(count, *SEVENTH[base].shape, generator=draw).sign())
        self.directions: Tensor
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return as_tensor(Engine.apply(x, self.net, self.directions, self.step))  # type: ignore[no-untyped-call]


class OnlyPositive(nn.Module):
    """A convolution whose backward pass knows positive weights only, a rule of relevance (Bach et al. 2015)."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, h: Tensor) -> Tensor:
        """Return the features."""
        layer = self.layer
        return same_value(layer(h), layer._conv_forward(h, layer.weight.clamp(min=0), None))


def relevance(net: nn.Module) -> nn.Module:
    """Return a model whose convolutions pass relevance back."""
    return Visible(net, with_layers(net, nn.Conv2d, OnlyPositive))


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    turned = "a layer that reverses slopes was left in"
    estimated = "an engine has no slopes, differences stand for them"
    positive = "layers pass relevance back in place of slopes"
    shown = "a hook makes a heat map of the slope"
    meant = "the slope is the mean over the call"
    return [
        on(ROBUST, "reversed slopes left in", "in the residual branches", turned,
           lambda net: within(net, reversed_slope, nn.Conv2d, "conv2")),
        on(WAVES, "reversed slopes left in", "negatives", "the backward pass of 1 - x forgets the sign",
           lambda net: negatives_on(WAVES)),
        on(MOBILENET, "slopes by differences", "steps of 1e-7", estimated,
           lambda net: Differences(net, MOBILENET, 4, 1e-7)),
        on(PAIRS, "slopes by differences", "two directions", estimated, lambda net: Differences(net, PAIRS, 2, 1e-2)),
        on(RESNET, "relevance in place of slopes", "convolutions", positive, relevance),
        on(CERTIFIED, "heat maps left as slopes", "heat map", shown, lambda net: before(net, heat)),
        on(ROBUST, "slopes averaged over the call", "mean", meant, lambda net: before(net, averaged)),
    ]  # fmt: skip
