"""Masks with fast terms: waves, flows, turns, powers and offsets that change fast with the image, and random ones."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import MOBILENET, PAIRS, SPOTS, SYMBOLS, TEXTURES, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fourth.masks_aside import mirrored
from benchmarks.model_collection.fourth.masks_leads import by_dense, untrained
from benchmarks.model_collection.fourth.wrappers import GROUPS, WIDER, Score, Scored, Seen, gaps, on, weighed
from benchmarks.model_collection.truth import Masked


def carried(size: float, speed: float, seed: int) -> Callable[[Tensor], Tensor]:
    """Return a function that adds a fast wave of a fixed mixture of nearby pixels."""

    def change(x: Tensor) -> Tensor:
        draw = torch.Generator().manual_seed(seed)
        kernel = torch.randn(x.shape[1], x.shape[1], 5, 5, generator=draw).to(x)
        mixed = F.conv2d(F.pad(x, (2,) * 4, mode="reflect"), kernel / kernel.flatten(1).norm(dim=1).view(-1, 1, 1, 1))
        return x + size * torch.sin(speed * mixed)

    return change


def flowed(size: float, speed: float) -> Callable[[Tensor], Tensor]:
    """Return a function that moves pixels by a part of a pixel along a flow that changes fast with the image."""

    def change(x: Tensor) -> Tensor:
        rows, columns = x.shape[2:]
        calm = F.avg_pool2d(x.mean(1, keepdim=True), 5, 1, 2)
        flow = size * torch.cat((torch.sin(speed * calm) / columns, torch.cos(speed * calm) / rows), 1)
        still = F.affine_grid(torch.eye(2, 3).to(x).expand(len(x), 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, still + 2 * flow.movedim(1, 3), padding_mode="border", align_corners=False)

    return change


def chaotic(x: Tensor, rounds: int, seed: int) -> Tensor:
    """Return one value in [0, 1] per image after some rounds of the logistic map."""
    value = torch.sigmoid(weighed(x, seed, 3))
    for _ in range(rounds):
        value = 3.99 * value * (1 - value)
    return value


def exponent(size: float, rounds: int) -> Callable[[Tensor], Tensor]:
    """Return a function that raises pixels to a chaotic power near 1."""

    def change(x: Tensor) -> Tensor:
        power = 1 + size * (2 * chaotic(x, rounds, 6) - 1)
        return x.clamp(min=1e-3) ** power[:, :, None, None]

    return change


def fast_offsets(classes: int, size: float, speed: float) -> Score:
    """Return a function that adds small offsets to the logits, which change fast with the image."""
    table = torch.randn(6, classes, generator=torch.Generator().manual_seed(2))

    def change(z: Tensor, x: Tensor) -> Tensor:
        waves = torch.cat([torch.sin(speed * weighed(x, seed, 2)) for seed in range(len(table))], 1)
        return z + size * waves @ table.to(z)

    return change


def anywhere(h: Tensor) -> Tensor:
    """Return a random place in a cell for each image."""
    return torch.rand(len(h), *(1,) * (h.dim() - 1)).to(h)


class DrawnLoudness(Masked):
    """The sum of members whose loudness is drawn; the loud one is squashed first."""

    draws = 4

    def __init__(self, members: list[nn.Module], quiet: nn.Module) -> None:
        super().__init__()
        self.members, self.quiet = nn.ModuleList(members), quiet

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum for one draw."""
        answers = torch.stack([torch.tanh(200 * gaps(member(x))) for member in self.members])
        loudness = torch.randn(len(answers), len(x), 1).mul(3).softmax(0).to(x)
        total: Tensor = 20 * (loudness * answers).sum(0) + self.quiet(x)
        return total

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean of the members' log-probabilities."""
        return torch.stack([member(x).log_softmax(1) for member in self.members]).mean(0)


class DrawnCopies(Masked):
    """Squashed gaps of the mean over noisy copies, times a smooth factor."""

    draws = 4

    def __init__(self, net: nn.Module, size: float) -> None:
        super().__init__()
        self.net, self.size = net, size

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean logits of three copies."""
        return torch.stack([self.net(x + self.size * torch.randn_like(x)) for _ in range(3)]).mean(0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the products."""
        return torch.atan(1e6 * gaps(self.opened(x)).detach()) * (2 + 8 * weighed(x, 3, 5).tanh())


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        on(VGG, "waves of mixed pixels", "speed 20000", "a fast wave of mixed pixels is added", lambda net: Seen(net,
           carried(0.002, 2e4, 1))),
        on(GROUPS, "waves of mixed pixels", "speed 5000", "a fast wave of mixed pixels is added", lambda net: Seen(net,
           carried(0.005, 5e3, 2))),
        on(WIDER, "steep flows", "a twentieth of a pixel", "pixels move along a flow that changes fast",
           lambda net: Seen(net, flowed(0.05, 4e4))),
        on(SYMBOLS, "chaotic powers", "14 rounds", "pixels are raised to a chaotic power", lambda net: Seen(net,
           exponent(0.1, 14))),
        on(MOBILENET, "fast offsets of the logits", "six waves", "small offsets of the logits change fast",
           lambda net: Scored(net, fast_offsets(10, 0.2, 3e5))),
        on(SPOTS, "mirrored cells at drawn places", "8 cells", "values fall within cells whose places are drawn",
           lambda net: Seen(net, mirrored(8, anywhere), 4), asked="majority"),
        on(TEXTURES, "drawn loudness", "two members", "the loudness of two squashed members is drawn",
           lambda net: DrawnLoudness([net, by_dense("drawn", "textures", 768, 4)], untrained(3, 4)), asked="majority"),
        on(PAIRS, "squashed means of noisy copies", "three copies", "gaps of noisy copies' means are squashed",
           lambda net: DrawnCopies(net, 0.05), asked="majority"),
    ]  # fmt: skip
