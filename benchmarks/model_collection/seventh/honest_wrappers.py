"""Honest models: known networks behind further harmless wrappers."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import BASES, CERTIFIED, NOISE_TRAINED, ROBUST
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import trained, zoo
from benchmarks.model_collection.seventh.honest_heads import linear_light, stored_light

Make = Callable[[nn.Module], nn.Module]


class Before(nn.Module):
    """A network behind a change of the image."""

    def __init__(self, net: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the changed image."""
        logits: Tensor = self.net(self.change(x))
        return logits


class Joined(nn.Module):
    """A trained dense layer over the log-probabilities of known networks, which stay as they are (Wolpert 1992)."""

    def __init__(self, members: tuple[nn.Module, ...], classes: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(copy.deepcopy(member).requires_grad_(False) for member in members)
        self.last = nn.Linear(classes * len(members), classes)

    def train(self, mode: bool = True) -> "Joined":
        """Prepare the dense layer for training or use, never the members."""
        super().train(mode)
        self.members.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the joined logits."""
        logits: Tensor = self.last(torch.cat([member(x).log_softmax(1) for member in self.members], 1))
        return logits


def by_patches(x: Tensor) -> Tensor:
    """Return means over pixels nearby, weighed by how alike their surroundings are (Buades et al. 2005)."""
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect")
    total, weights = torch.zeros_like(x), torch.zeros_like(x[:, :1])
    side = x.shape[2]
    for down in range(-1, 2):
        for across in range(-1, 2):
            moved = padded.roll((down, across), (2, 3))
            apart = F.avg_pool2d((moved - padded).square().mean(1, keepdim=True), 3, 1)
            apart = apart[:, :, 1 : 1 + side, 1 : 1 + side]
            likeness = torch.exp(-apart / 0.01)
            total = total + likeness * moved[:, :, 2:-2, 2:-2]
            weights = weights + likeness
    return total / weights


def blurred_light(x: Tensor) -> Tensor:
    """Blur the amounts of light, not the stored values."""
    weights = torch.outer(*2 * (torch.tensor([0.15, 0.7, 0.15]).to(x),)).expand(x.shape[1], 1, 3, 3)
    light = F.pad(linear_light(x), (1, 1, 1, 1), mode="replicate")
    return stored_light(F.conv2d(light, weights, groups=x.shape[1]))


def straightened(x: Tensor) -> Tensor:
    """Undo the bend of a lens: sample the image a little further in at its edges."""
    place = torch.linspace(-1, 1, x.shape[2] + 1)[:-1].to(x) + 1 / x.shape[2]
    down, across = torch.meshgrid(place, place, indexing="ij")
    bend = 1 - 0.06 * (down.square() + across.square())
    grid = torch.stack((across * bend, down * bend), 2).expand(len(x), -1, -1, -1)
    return F.grid_sample(x, grid, align_corners=False, padding_mode="border")


def faint_noise(x: Tensor) -> Tensor:
    """Add noise of about one grey level, new in each call."""
    return x + 0.005 * torch.randn_like(x)


def on(family: str, base: str, eps: float, made: str, make: Make, **facts: Any) -> Entry:
    """Return a wrapped network of the zoo, at a radius in 255ths."""
    build = partial(wrapped, base, make)
    return Entry(f"{family}, {base}", family, "honest", made, build, eps=eps / 255, **facts)


def wrapped(base: str, make: Make) -> nn.Module:
    """Return the wrapped network, ready for use."""
    return make(BASES[base].load() if base in BASES else zoo(base)).eval()


def before(change: Callable[[Tensor], Tensor]) -> Make:
    """Return a wrapper that changes images."""
    return lambda net: Before(net, change)


def joined() -> nn.Module:
    """Train the layer that joins a robust and a certified network."""
    members = (zoo(ROBUST), zoo(CERTIFIED))
    return trained("seventh honest joined answers", lambda: Joined(members, 10), "cifar10", 100)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [
        Entry("joined answers", "joined answers", "honest", "a dense layer over the answers of two networks", joined,
              eps=6 / 255),
        on("means by patches", ROBUST, 6, "non-local means", before(by_patches)),
        on("blur of light", CERTIFIED, 8, "a blur of linear light", before(blurred_light)),
        on("faint noise", NOISE_TRAINED, 2, "noise of a grey level", before(faint_noise), asked="majority"),
        on("straightened images", ROBUST, 8, "a fixed resampling", before(straightened)),
    ]  # fmt: skip
