"""Random models: noise, resizing, erasing, random members and weights; some hide their randomness."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    MOBILENET,
    NOISE_TRAINED,
    RESNET,
    ROBUST,
    SYMBOLS,
    SYMBOLS_16,
    TEXTURES,
    VGG,
    masked,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import zoo
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]


class Random(Masked):
    """A network behind a random change of the image; the attacker averages gradients over draws."""

    draws = 16

    def __init__(self, net: nn.Module, change: Change, floor: bool = False) -> None:
        super().__init__()
        self.net, self.change, self.floor = net, change, floor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one draw; with `floor`, a further class at -1e9 that never wins."""
        z: Tensor = self.net(self.change(x))
        return torch.cat((z, torch.full_like(z[:, :1], -1e9)), 1) if self.floor else z

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of one draw, with rounding skipped in the backward pass."""
        changed = self.change(x)
        if not changed.requires_grad and x.requires_grad:
            changed = x + (changed - x).detach()
        logits: Tensor = self.net(changed)
        return logits


def with_noise(size: float) -> Change:
    """Add Gaussian noise."""
    return lambda x: x + size * torch.randn_like(x)


def with_rounded_noise(size: float, levels: int) -> Change:
    """Add noise, then round."""
    return lambda x: ((x + size * torch.randn_like(x)) * levels).round().detach() / levels


def resized(x: Tensor) -> Tensor:
    """Shrink each batch to a random size and pad it at a random place (Xie et al. 2018)."""
    side = x.shape[2]
    small = int(torch.randint(side - 6, side, ()))
    top, left = (int(v) for v in torch.randint(0, side - small + 1, (2,)))
    shrunk = F.interpolate(x, size=(small, small), mode="bilinear")
    return F.pad(shrunk, (left, side - small - left, top, side - small - top))


def erased(x: Tensor) -> Tensor:
    """Blank a random square of each image."""
    side, size = x.shape[2], x.shape[2] // 4
    top, left = torch.randint(0, side - size, (2, len(x), 1, 1, 1))
    down, across = torch.arange(side).view(1, 1, -1, 1), torch.arange(side).view(1, 1, 1, -1)
    inside = (down >= top) & (down < top + size) & (across >= left) & (across < left + size)
    return torch.where(inside, x.new_full((), 0.5), x)


def deflected(x: Tensor) -> Tensor:
    """Replace a tenth of the pixels by neighbours (Prakash et al. 2018)."""
    down, across = (int(v) for v in torch.randint(-2, 3, (2,)))
    return torch.where(torch.rand_like(x[:, :1]) < 0.1, x.roll((down, across), (2, 3)), x)


def dimmed(x: Tensor) -> Tensor:
    """Scale each channel by a random factor."""
    return x * (0.8 + 0.4 * torch.rand(len(x), x.shape[1], 1, 1, dtype=x.dtype))


class RandomMember(Masked):
    """Asks one of several networks, drawn per call."""

    draws = 8

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one member."""
        logits: Tensor = self.members[int(torch.randint(len(self.members), ()))](x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean of the members' log-probabilities."""
        return torch.stack([member(x).log_softmax(1) for member in self.members]).mean(0)


class NoisyWeights(Masked):
    """Changes every weight a little in every call."""

    draws = 8

    def __init__(self, net: nn.Module, size: float) -> None:
        super().__init__()
        self.net, self.size = net, size

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one draw of weights."""
        drawn = {name: w * (1 + self.size * torch.randn_like(w)) for name, w in self.net.named_parameters()}
        logits: Tensor = torch.func.functional_call(self.net, drawn, (x,))
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of one draw."""
        return self(x)  # type: ignore[no-any-return]


class NoisyScores(Masked):
    """Adds noise to the logits, so that margins jump while labels seldom change."""

    def __init__(self, net: nn.Module, size: float, floor: bool) -> None:
        super().__init__()
        self.net, self.size, self.floor = net, size, floor

    def forward(self, x: Tensor) -> Tensor:
        """Return noisy logits; with `floor`, the least likely class at -1e9."""
        z: Tensor = self.net(x)
        noisy = z + self.size * torch.randn_like(z)
        return noisy.scatter(1, z.argmin(1, keepdim=True), -1e9) if self.floor else noisy

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    hidden = "a class at -1e9 hides the randomness"
    special = [
        masked("random members", "three networks", "each call asks one of three networks",
               lambda net: RandomMember([net, zoo(MOBILENET), zoo(RESNET)]), [VGG], asked="majority"),
        masked("random members", "with a robust one", "each call asks a natural or a robust network",
               lambda net: RandomMember([net, zoo(ROBUST)]), [ALEXNET], asked="majority"),
        masked("random weights", "5 % noise", "every call changes every weight a little",
               lambda net: NoisyWeights(copy.deepcopy(net), 0.05), [ALEXNET, TEXTURES], asked="majority"),
        masked("hidden randomness", "noise and 11 classes", f"noise on the image; {hidden}",
               lambda net: Random(net, with_noise(0.04), floor=True), [VGG], asked="majority", classes=11),
        masked("hidden randomness", "erasing and 17 classes", f"a random square is erased; {hidden}",
               lambda net: Random(net, erased, floor=True), [SYMBOLS_16], asked="majority", classes=17),
        masked("hidden randomness", "noisy scores", f"noise on the logits; {hidden}",
               lambda net: NoisyScores(net, 1.0, floor=True), [ROBUST], asked="majority"),
        masked("noisy scores", "noisy scores", "noise on the logits", lambda net: NoisyScores(net, 2.0, floor=False),
            [RESNET], asked="majority"),
        [Entry("vgg16-rse", "random layers of the zoo", "masked", "the random layers of the zoo's RSE network",
               lambda: Random(zoo("vgg16-rse"), lambda x: x), asked="majority")],
    ]  # fmt: skip
    changed = [
        masked(family, name, made, partial(Random, change=change), bases, asked="majority")
        for family, name, made, change, bases in TABLE
    ]
    return [model for models in special + changed for model in models]


TABLE: Final[list[tuple[str, str, str, Change, list[str]]]] = [
    ("noisy images", "noise of 0.12", "Gaussian noise on the image", with_noise(0.12), [NOISE_TRAINED]),
    ("noisy images", "noise of 0.05", "Gaussian noise on the image", with_noise(0.05), [ALEXNET]),
    ("noisy, rounded images", "noise and 10 levels", "noise, then rounding", with_rounded_noise(0.05, 10), [VGG,
        SYMBOLS]),
    ("resized images", "random resizing", "the image is resized and padded at random", resized, [RESNET, SYMBOLS]),
    ("erased images", "random square", "a random square is blanked", erased, [ALEXNET]),
    ("erased images", "pixel deflection", "pixels become their neighbours at random", deflected, [VGG]),
    ("dimmed images", "random channels", "each channel is scaled at random", dimmed, [MOBILENET]),
]  # fmt: skip
