"""Memory and training tools left in: weights swapped, buffers reused, saved values compressed, slopes dropped."""

import copy
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    MOBILENET,
    RESNET,
    SPOTS,
    SYMBOLS,
    SYMBOLS_16,
    VGG,
)
from benchmarks.model_collection.eighth.masked_slopes import before
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import Rows, trained
from benchmarks.model_collection.seventh.masked_shared import SEVENTH, as_tensor, on, with_layers
from benchmarks.model_collection.sixth.wrappers import OfTheNetwork
from benchmarks.model_collection.truth import Masked


class Swapped(OfTheNetwork):
    """Averaged weights are written in for a call, unseen by autograd, and out before the backward pass."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.work = copy.deepcopy(net)
        self.live = [at_the_start(values.detach().clone()) for values in net.parameters()]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the averaged weights."""
        for values, good in zip(self.work.parameters(), self.net.parameters(), strict=True):
            values.data.copy_(good.data)
        z = as_tensor(self.work(x))
        for values, other in zip(self.work.parameters(), self.live, strict=True):
            values.data.copy_(other)
        return z


def at_the_start(values: Tensor) -> Tensor:
    """Return weights as an untrained network has them: of the same size, in another order."""
    if values.dim() < 2:
        return values
    order = torch.randperm(values.numel(), generator=torch.Generator().manual_seed(82))
    return values.flatten()[order].view(values.shape)


class Arena:
    """The results of layers whose memory is given to others when the call ends."""

    def __init__(self) -> None:
        self.held: list[Tensor] = []

    def reuse(self, change: Callable[[Tensor], Tensor]) -> None:
        """Write other values into the memory."""
        for values in self.held:
            values.data.copy_(change(values.data))
        self.held.clear()


class InArena(nn.Module):
    """A ReLU whose result lies in the arena."""

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self.arena = arena

    def forward(self, h: Tensor) -> Tensor:
        """Return the features."""
        h = F.relu(h)
        self.arena.held.append(h)
        return h


class Reused(OfTheNetwork):
    """A network whose activations are overwritten before the backward pass reads them."""

    def __init__(self, net: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__(net)
        self.arena, self.change = Arena(), change
        self.work = with_layers(net, nn.ReLU, lambda layer: InArena(self.arena))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        z = as_tensor(self.work(x)).clone()
        self.arena.reuse(self.change)
        return z


def marked_free(values: Tensor) -> Tensor:
    """Return a map of the places that held nothing."""
    return (values == 0).to(values)


def shifted(values: Tensor) -> Tensor:
    """Return the values of other channels."""
    return values.roll(values.shape[1] // 2, 1)


class Compressed(OfTheNetwork):
    """All that autograd saves for the backward pass is rounded, to save memory."""

    def __init__(self, net: nn.Module, levels: int) -> None:
        super().__init__(net)
        self.levels = levels

    def pack(self, values: Tensor) -> Tensor:
        """Return the values in a few levels of one scale."""
        if not values.is_floating_point() or not values.numel():
            return values
        scale = values.detach().abs().max().clamp(min=1e-12)
        return (values.detach() / scale * self.levels).round() / self.levels * scale

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        with torch.autograd.graph.saved_tensors_hooks(self.pack, lambda values: values):
            return as_tensor(self.net(x))


def largest_of_the_call(slope: Tensor, share: float) -> Tensor:
    """Keep the largest slopes of the whole call, as workers do that send few numbers."""
    sizes = slope.abs().flatten()
    limit = sizes.topk(max(1, int(share * sizes.numel()))).values[-1]
    return torch.where(slope.abs() >= limit, slope, torch.zeros_like(slope))


def guarded(slope: Tensor, limit: float) -> Tensor:
    """Drop the slopes of images that are larger than a limit, as a guard against jumps of the loss does."""
    sizes = slope.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return torch.where(sizes < limit, slope, torch.zeros_like(slope))


class Truncated(Masked):
    """A recurrent network whose state forgets its graph every few rows, as in training on long sequences."""

    def __init__(self, net: Rows, rows: int) -> None:
        super().__init__()
        self.net, self.rows = net, rows

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after the last row."""
        h = x.new_zeros(len(x), self.net.width)
        for number, row in enumerate(x.transpose(1, 2).flatten(2).unbind(1)):
            h = h if number % self.rows else h.detach()
            h = torch.tanh(self.net.enter(row) + self.net.again(h))
        return as_tensor(self.net.head(h))

    def opened(self, x: Tensor) -> Tensor:
        """Return the same with the whole graph."""
        return as_tensor(self.net(x))


def truncated_on(base: str, rows: int, steps: int) -> nn.Module:
    """Return a recurrent network for the images of a base."""
    found = SEVENTH[base]
    net = trained("eighth rows", partial(Rows, found.shape[0], found.shape[2], found.classes), found.images, steps)
    assert isinstance(net, Rows)
    return Truncated(net, rows)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    swapped = "averaged weights are swapped out before the backward pass"
    reused = "activations are overwritten before the backward pass"
    packed = "values that are saved for the backward pass are rounded"
    sent = "only the largest slopes of the whole call are kept"
    guard = "a guard drops the slopes of images where they are large"
    forgets = "the state forgets its graph every few rows"
    return [
        on(VGG, "weights swapped after the call", "weights of the start", swapped, Swapped),
        on(ALEXNET, "reused buffers", "a map of free places", reused, lambda net: Reused(net, marked_free)),
        on(SPOTS, "reused buffers", "other channels", reused, lambda net: Reused(net, shifted)),
        on(MOBILENET, "compressed saved values", "three levels", packed, lambda net: Compressed(net, 1)),
        on(RESNET, "compressed slopes", "a thousandth", sent,
           lambda net: before(net, partial(largest_of_the_call, share=1e-3))),
        on(SYMBOLS, "guards against large slopes", "limit of 1e-4", guard,
           lambda net: before(net, partial(guarded, limit=1e-4))),
        on(SYMBOLS_16, "truncated recurrence", "every 2 rows", forgets, lambda net: truncated_on(SYMBOLS_16, 2, 500)),
    ]  # fmt: skip
