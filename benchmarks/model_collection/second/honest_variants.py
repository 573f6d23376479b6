"""Honest variants of networks of the zoo: other weights, wrappers, number formats and outputs."""

import copy
from collections.abc import Callable
from typing import Final

import torch
import torch.fx
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    BASES,
    CERTIFIED,
    MOBILENET,
    RESNET,
    ROBUST,
    SPOTS,
    SYMBOLS,
    VGG,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.honest import Around, honest

Change = Callable[[nn.Module], nn.Module]


def edited(edit: Callable[[Tensor], Tensor]) -> Change:
    """Change the weights of all filters and dense layers."""

    def change(net: nn.Module) -> nn.Module:
        made = copy.deepcopy(net)
        with torch.no_grad():
            for weights in made.parameters():
                if weights.dim() > 1:
                    weights.copy_(edit(weights))
        return made

    return change


def eight_bits(w: Tensor) -> Tensor:
    """Round to 255 levels."""
    step = w.abs().amax() / 127
    return (w / step).round() * step


def four_bits(w: Tensor) -> Tensor:
    """Round each row to 15 levels."""
    step = w.flatten(1).abs().amax(1).view(-1, *[1] * (w.dim() - 1)) / 7
    return (w / step).round() * step


def pruned(w: Tensor) -> Tensor:
    """Zero the smallest 40 % of the weights."""
    return w * (w.abs() >= w.abs().flatten().kthvalue(max(1, int(0.4 * w.numel()))).values)


def low_rank(w: Tensor) -> Tensor:
    """Keep the largest singular values that hold 97 % of the squared sum."""
    u, s, v = torch.linalg.svd(w.flatten(1), full_matrices=False)
    keep = (s.square().cumsum(0) / s.square().sum() <= 0.97).to(s)
    keep[0] = 1
    short: Tensor = (u * (s * keep)) @ v
    return short.view_as(w)


class Adapted(nn.Module):
    """A dense or other layer plus a low-rank correction (LoRA)."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features, generator=draw) / layer.in_features**0.5)
        self.up = nn.Parameter(0.2 * torch.randn(layer.out_features, rank, generator=draw))

    def forward(self, h: Tensor) -> Tensor:
        """Return the sum."""
        total: Tensor = self.layer(h) + h @ self.down.T @ self.up.T
        return total


def adapted(net: nn.Module) -> nn.Module:
    """Add corrections to the dense layers."""
    made = copy.deepcopy(net)
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Adapted(child))
    return made


def watched(net: nn.Module) -> nn.Module:
    """Add hooks that look at values and gradients and change nothing."""
    made = copy.deepcopy(net)
    for part in made.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(watch)
    return made


def watch(part: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
    """Add a hook that returns nothing, so that the gradient stays."""
    if result.requires_grad:
        result.register_hook(lambda slope: None)  # type: ignore[no-untyped-call]


class OneByOne(nn.Module):
    """Asks the network about one image at a time."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of all images."""
        return torch.cat([self.net(image[None]) for image in x])


def traced(net: nn.Module) -> nn.Module:
    """Return the recorded graph as a module."""
    return torch.fx.symbolic_trace(net)


def half_precision(net: nn.Module) -> nn.Module:
    """Store the weights in bfloat16."""
    return copy.deepcopy(net).to(torch.bfloat16)


def stored_in_half(net: nn.Module) -> nn.Module:
    """Round the weights to float16 and compute in float32."""
    return copy.deepcopy(net).half().float()


def channels_last(net: nn.Module) -> nn.Module:
    """Order the memory by pixels."""
    made = copy.deepcopy(net).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Around(made, before=lambda x: x.contiguous(memory_format=torch.channels_last))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(family, made, change, base) for family, made, change, bases in TABLE for base in bases]


def one(family: str, made: str, change: Change, name: str) -> Entry:
    """Return one variant."""
    base = BASES[name]
    facts = {"images": base.images, "classes": base.classes, "shape": base.shape, "eps": base.eps}
    return honest(family, f"{family}, {name}", made, lambda: change(base.load()), **facts)


TABLE: Final[list[tuple[str, str, Change, list[str]]]] = [
    ("8-bit weights", "weights of 255 levels", edited(eight_bits), [VGG, ROBUST]),
    ("4-bit weights", "weights of 15 levels per filter", edited(four_bits), [SPOTS]),
    ("pruned weights", "the smallest 40 % of the weights are zero", edited(pruned), [ALEXNET]),
    ("low-rank weights", "weights of reduced rank", edited(low_rank), [CERTIFIED]),
    ("low-rank corrections", "corrections added to the dense layers", adapted, [RESNET]),
    ("harmless hooks", "hooks look at gradients", watched, [MOBILENET]),
    ("one image at a time", "a loop over the images", OneByOne, [CERTIFIED]),
    ("traced graphs", "traced by torch.fx", traced, [ALEXNET]),
    ("parallel wrapper", "wrapped in DataParallel", nn.DataParallel, [CERTIFIED]),
    ("bfloat16", "weights and images in bfloat16", half_precision, [SYMBOLS]),
    ("weights from float16", "weights rounded to float16", stored_in_half, [ROBUST]),
    ("order of memory", "channels last", channels_last, [VGG]),
]  # fmt: skip
