"""Mistakes in the layers themselves: multipliers, eight-bit floats, adjoints, recomputation in another order."""

import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input, conv2d_weight

from benchmarks.model_collection.bases import ALEXNET, MOBILENET, PAIRS, RESNET, ROBUST, TEXTURES, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import trained
from benchmarks.model_collection.seventh.masked_shared import GREY_CIFAR, SEVENTH, as_tensor, on, with_layers
from benchmarks.model_collection.sixth.wrappers import OfTheNetwork
from benchmarks.model_collection.truth import Masked


class Visible(OfTheNetwork):
    """A changed copy of a network is deployed; the attacker differentiates the network itself."""

    def __init__(self, net: nn.Module, changed: nn.Module) -> None:
        super().__init__(net)
        self.changed = changed

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the changed copy."""
        return as_tensor(self.changed(x))


class Multiplier(torch.autograd.Function):
    """A convolution by truncated products; its backward pass was written for the weights only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: nn.Conv2d, bits: int) -> Tensor:
        """Return the sums of products of numbers with a short mantissa."""
        ctx.save_for_backward(x)
        ctx.layer = layer
        mask = -(1 << (23 - bits))
        short, cut = ((value.contiguous().view(torch.int32) & mask).view(torch.float32) for value in (x, weight))
        return as_tensor(layer._conv_forward(short, cut, layer.bias))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the gradient of the weights."""
        (x,), layer = ctx.saved_tensors, ctx.layer
        how = (layer.stride, layer.padding, layer.dilation, layer.groups)
        weight = conv2d_weight(x, layer.weight.shape, slopes[0], *how)  # type: ignore[no-untyped-call]
        return None, weight, None, None


class ShortProducts(nn.Module):
    """A convolution by the kernel above ("defensive approximation", Guesmi et al. 2021)."""

    def __init__(self, layer: nn.Conv2d, bits: int) -> None:
        super().__init__()
        self.layer, self.bits = layer, bits

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        return as_tensor(Multiplier.apply(x, self.layer.weight, self.layer, self.bits))  # type: ignore[no-untyped-call]


class EightBits(nn.Module):
    """A layer whose result is stored as a float of eight bits; so is what comes back."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        return as_tensor(self.layer(x)).to(torch.float8_e4m3fn).to(x.dtype)


class Unturned(torch.autograd.Function):
    """A convolution whose backward pass forgets to turn the kernels round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Conv2d) -> Tensor:
        """Return the features."""
        ctx.layer, ctx.shape = layer, x.shape
        return as_tensor(layer(x))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the gradient through unturned kernels."""
        layer = ctx.layer
        weight = layer.weight.flip(2, 3)
        how = (layer.stride, layer.padding, layer.dilation, layer.groups)
        slope = conv2d_input(ctx.shape, weight, slopes[0], *how)  # type: ignore[no-untyped-call]
        return slope, None


class OwnKernel(nn.Module):
    """A convolution by the function above."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        return as_tensor(Unturned.apply(x, self.layer))  # type: ignore[no-untyped-call]


class Flow(nn.Module):
    """The right-hand side of an ordinary differential equation."""

    def __init__(self, width: int, decay: float) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
        self.decay = decay

    def forward(self, h: Tensor) -> Tensor:
        """Return the derivative."""
        return self.decay * (as_tensor(2 * self.second(torch.tanh(self.first(h)))) - h)


class Adjoint(torch.autograd.Function):
    """Euler steps; the backward pass runs the equation back from the end, as in Chen et al. 2018."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, flow: nn.Module, steps: int) -> Tensor:
        """Return the last state."""
        for _ in range(steps):
            h = h + flow(h) / steps
        ctx.save_for_backward(h)
        ctx.flow, ctx.steps = flow, steps
        return h

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the gradient along the states that running back gives."""
        h, slope = ctx.saved_tensors[0], slopes[0]
        for _ in range(ctx.steps):
            with torch.enable_grad():
                point = h.detach().requires_grad_(True)
                value = ctx.flow(point)
                (change,) = torch.autograd.grad(value, point, slope)
            h, slope = h - value.detach() / ctx.steps, slope + change / ctx.steps
        return slope, None, None


class Equation(Masked):
    """A network with an ordinary differential equation in the middle."""

    def __init__(self, channels: int, classes: int, decay: float, steps: int, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, 2, 1)
        self.flow, self.steps = Flow(width, decay), steps
        grid = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Sequential(grid, nn.Flatten(), nn.Linear(16 * width, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; once trained, the solver has its own backward pass."""
        if self.training:
            return self.opened(x)
        h = as_tensor(Adjoint.apply(self.stem(x), self.flow, self.steps))  # type: ignore[no-untyped-call]
        return as_tensor(self.head(h))

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits through recorded steps."""
        h = self.stem(x)
        for _ in range(self.steps):
            h = h + self.flow(h) / self.steps
        return as_tensor(self.head(h))


def equation_on(base: str, decay: float, steps: int, training: int = 200) -> nn.Module:
    """Return a network with an equation, trained on a base's images."""
    found = SEVENTH[base]
    make = partial(Equation, found.shape[0], found.classes, decay, steps)
    return trained(f"seventh equation {decay} {steps}", make, found.images, training)


class Tiles(torch.autograd.Function):
    """Evens out the contrast of tiles, in a random order; the backward pass draws the order again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, side: int) -> Tensor:
        """Return the image of evened tiles; the order does not show."""
        ctx.save_for_backward(x)
        ctx.side = side
        tiles = F.unfold(x, side, stride=side)
        order = torch.randperm(tiles.shape[2])
        evened = torch.empty_like(tiles)
        evened[..., order] = even(tiles[..., order])
        return F.fold(evened, x.shape[2:], side, stride=side)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Compute the tiles again, in the order of the random numbers that come next."""
        (x,), side = ctx.saved_tensors, ctx.side
        with torch.enable_grad():
            tiles = F.unfold(x, side, stride=side).requires_grad_(True)
            order = torch.randperm(tiles.shape[2])
            (slope,) = torch.autograd.grad(even(tiles[..., order]), tiles, F.unfold(slopes[0], side, stride=side))
        return F.fold(slope, x.shape[2:], side, stride=side), None


def even(tiles: Tensor) -> Tensor:
    """Bring each tile's deviations a little closer to a common size."""
    mean = tiles.mean(1, keepdim=True)
    return mean + (tiles - mean) * (0.9 + 0.02 / (tiles.var(1, keepdim=True).sqrt() + 0.1))


class EvenTiles(OfTheNetwork):
    """A network behind evened tiles."""

    def __init__(self, net: nn.Module, side: int) -> None:
        super().__init__(net)
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return as_tensor(self.net(as_tensor(Tiles.apply(x, self.side))))  # type: ignore[no-untyped-call]


def unturned(net: nn.Module) -> nn.Module:
    """Return a model whose convolutions forget to turn their kernels."""
    return Visible(net, with_layers(net, nn.Conv2d, OwnKernel))


def eight_bits(net: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """Return a model that stores the results of a kind of layers in eight bits."""
    return Visible(net, with_layers(net, kind, EightBits))


def short_products(net: nn.Module, bits: int, inside: str) -> nn.Module:
    """Return a model with truncated products in some convolutions."""
    return Visible(net, with_layers(net, nn.Conv2d, lambda layer: ShortProducts(copy.deepcopy(layer), bits), inside))


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    short = "products of short mantissas, with a gradient for the weights only"
    turned = "own convolutions forget to turn the kernels in the backward pass"
    stored = "results of layers are stored as floats of eight bits, and so are slopes"
    back = "the backward pass runs the equation back from its end"
    order = "tiles are computed again in another order for the backward pass"
    return [
        on(RESNET, "approximate multipliers", "4 bits in the branches", short,
           lambda net: short_products(net, 4, "conv")),
        on(ROBUST, "approximate multipliers", "5 bits in the second convolutions", short,
           lambda net: short_products(net, 5, "conv2")),
        on(VGG, "floats of eight bits", "after each norm", stored, lambda net: eight_bits(net, nn.BatchNorm2d)),
        on(ALEXNET, "floats of eight bits", "after each ReLU", stored, lambda net: eight_bits(net, nn.ReLU)),
        on(VGG, "kernels turned the wrong way", "unturned kernels", turned, unturned),
        on(MOBILENET, "kernels turned the wrong way", "unturned kernels", turned, unturned),
        on(ROBUST, "kernels turned the wrong way", "unturned kernels", turned, unturned),
        on(TEXTURES, "equations run back", "decay of 6", back, lambda net: equation_on(TEXTURES, 6.0, 6)),
        on(GREY_CIFAR, "equations run back", "decay of 4", back, lambda net: equation_on(GREY_CIFAR, 4.0, 4, 500)),
        on(VGG, "tiles in another order", "8 x 8", order, lambda net: EvenTiles(net, 8)),
        on(PAIRS, "tiles in another order", "4 x 4", order, lambda net: EvenTiles(net, 4)),
    ]  # fmt: skip
