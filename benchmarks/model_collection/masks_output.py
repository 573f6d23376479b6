"""Masks after the network: hidden, saturated, rounded or rescaled scores, votes, branches and switches."""

from collections.abc import Callable
from functools import partial
from typing import Final

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
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import convolutions, trained, zoo
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]


class Reworded(Masked):
    """A network whose logits are changed; the attacker differentiates the logits before."""

    def __init__(self, net: nn.Module, change: Change) -> None:
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x: Tensor) -> Tensor:
        """Return the changed logits."""
        return self.change(self.net(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


def winners_logit(z: Tensor) -> Tensor:
    """Show the winner's logit; the others are a constant below it."""
    shown = F.one_hot(z.argmax(1), z.shape[1]).bool()
    return torch.where(shown, z.amax(1, keepdim=True).clamp(min=-20) + 30, torch.zeros_like(z))


def winners_probability(z: Tensor) -> Tensor:
    """Show the winner's probability; the others share the rest equally."""
    shown = F.one_hot(z.argmax(1), z.shape[1]).bool()
    top = z.softmax(1).amax(1, keepdim=True)
    return torch.where(shown, top, (1 - top) / z.shape[1]).clamp(min=1e-6).log()


def two_winners(z: Tensor) -> Tensor:
    """Show the two largest logits; the others are a constant."""
    shown = torch.zeros_like(z).scatter(1, z.argsort(1)[:, -2:], 1).bool()
    return torch.where(shown, z, z.detach().amin().expand_as(z))


def label_only(z: Tensor) -> Tensor:
    """Show the label as a one-hot vector that hangs on the graph."""
    return 10 * F.one_hot(z.argmax(1), z.shape[1]).to(z) + 0 * z


def soft_label(z: Tensor) -> Tensor:
    """Show a softmax so sharp that it is one-hot."""
    return 5 * (1e4 * z).softmax(1)


def ranks(z: Tensor) -> Tensor:
    """Show the place of each class in the order of the logits."""
    return z.argsort(1).argsort(1).to(z) + 0 * z


def clipped(limit: float) -> Change:
    """Centre the logits, scale them and clip them, which hides all but the winner's sign."""
    return lambda z: (8 * (z - z.topk(2).values.mean(1, keepdim=True))).clamp(-limit, limit)


def steps_of(size: float) -> Change:
    """Round the logits."""
    return lambda z: (z / size).round() * size + 1e-4 * z.detach()


def shifted(offset: float) -> Change:
    """Add a constant so large that float32 rounds the differences."""
    return lambda z: z + offset


def half_range(z: Tensor) -> Tensor:
    """Scale into the range of float16, where most values saturate, and back."""
    scaled = (4e4 * (z - z.mean(1, keepdim=True))).clamp(-65504, 65504)
    return scaled.half().float() + 1e-3 * z.detach()


def scaled(factor: float) -> Change:
    """Multiply the logits."""
    return lambda z: factor * z


def probabilities(z: Tensor) -> Tensor:
    """Return probabilities of sharpened logits."""
    return (20 * z).softmax(1)


def floored(z: Tensor) -> Tensor:
    """Return logarithms of probabilities, with a floor below which nothing changes."""
    return ((15 * z).softmax(1) + 1e-3).log()


def codewords(classes: int, bits: int = 48) -> Change:
    """Compare the signs of random projections of the logits with those of each class."""
    drawn = torch.Generator().manual_seed(classes)
    project = torch.randn(classes, bits, generator=drawn)

    def change(z: Tensor) -> Tensor:
        centred = z - z.mean(1, keepdim=True)
        return torch.sign(centred @ project) @ torch.sign(project).T / bits + 0 * z

    return change


class Neighbours(Masked):
    """Counts the classes of the nearest stored images, by distance between their logits."""

    def __init__(self, net: nn.Module, images: str, classes: int, count: int = 15) -> None:
        super().__init__()
        x, y = images_of(images)
        with torch.no_grad():
            self.register_buffer("stored", net(x[-400:]))
        self.stored: Tensor
        self.register_buffer("votes", F.one_hot(y[-400:], classes).float())
        self.votes: Tensor
        self.net, self.count = net, count

    def forward(self, x: Tensor) -> Tensor:
        """Return the counts."""
        z: Tensor = self.net(x)
        nearest = torch.cdist(z, self.stored).topk(self.count, largest=False).indices
        return self.votes[nearest].sum(1) + 0 * z

    def opened(self, x: Tensor) -> Tensor:
        """Return the network's logits."""
        logits: Tensor = self.net(x)
        return logits


class Branches(Masked):
    """A saturated network plus a little of another: the gradient is true and leads along the weak branch."""

    def __init__(self, strong: nn.Module, weak: nn.Module, squash: Change, little: float) -> None:
        super().__init__()
        self.strong, self.weak, self.squash, self.little = strong, weak, squash, little

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both branches."""
        z = self.strong(x)
        logits: Tensor = self.squash(z - z.topk(2).values.mean(1, keepdim=True)) + self.little * self.weak(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the branches without saturation, on one scale."""
        logits: Tensor = self.strong(x) + self.weak(x) / 2
        return logits


class Switched(Masked):
    """Asks one of two networks, chosen by a discontinuous rule."""

    def __init__(self, first: nn.Module, second: nn.Module, rule: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.rule = first, second, rule

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the chosen network; the choice has no gradient."""
        z: Tensor = self.first(x)
        return torch.where(self.rule(x, z)[:, None], z, self.second(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return the sum: whichever is chosen is then wrong."""
        logits: Tensor = self.first(x).log_softmax(1) + self.second(x).log_softmax(1)
        return logits


def by_last_digit(x: Tensor, z: Tensor) -> Tensor:
    """Choose by a digit of the mean brightness."""
    return (x.mean((1, 2, 3)) * 4096).long() % 2 == 0


def by_confidence(x: Tensor, z: Tensor) -> Tensor:
    """Choose the first network where it is almost certain."""
    return z.softmax(1).amax(1) > 0.999


class Votes(Masked):
    """Counts the labels of shifted copies."""

    def __init__(self, net: nn.Module, reach: int = 2) -> None:
        super().__init__()
        self.net = net
        self.shifts = [(down, across) for down in range(-reach, reach + 1, reach) for across in (-reach, 0, reach)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the counts, which have no gradient."""
        logits: list[Tensor] = [self.net(x.roll(shift, (2, 3))) for shift in self.shifts]
        counts = torch.stack([F.one_hot(z.argmax(1), z.shape[1]).to(x) for z in logits]).sum(0)
        return counts + 0 * logits[0]

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean logits."""
        return torch.stack([self.net(x.roll(shift, (2, 3))) for shift in self.shifts]).mean(0)


def second_symbols(classes: int) -> nn.Module:
    """Return another network for the symbols."""
    images = f"symbols {classes}"
    return trained("symbols again", lambda: convolutions(1, classes, nn.Tanh, width=6), images)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    made = "tanh of one network plus a little of another"
    saturated = [
        masked("saturated branch", "tanh", made, lambda net: Branches(net, zoo(RESNET), lambda z: torch.tanh(20 * z),
            0.05), [VGG]),
        masked("saturated branch", "softer tanh", made, lambda net: Branches(net, zoo(MOBILENET),
            lambda z: torch.tanh(4 * z), 0.04), [ALEXNET]),
        masked("saturated branch", "arctangent", "arctangent of one network plus a little of another",
               lambda net: Branches(net, zoo(ALEXNET), lambda z: torch.atan(50 * z), 0.05), [RESNET]),
        masked("saturated branch", "error function", "error function of one network plus a little of another",
               lambda net: Branches(net, second_symbols(16), lambda z: torch.erf(8 * z), 0.03), [SYMBOLS_16]),
        masked("votes", "votes of 9 shifts", "the labels of 9 shifted copies are counted", Votes, [ALEXNET, SYMBOLS]),
        masked("neighbours", "15 neighbours", "the classes of the nearest stored images are counted",
               lambda net: Neighbours(net, "cifar10", 10), [VGG]),
        masked("neighbours", "15 neighbours", "the classes of the nearest stored images are counted",
               lambda net: Neighbours(net, "symbols 11", 11), [SYMBOLS_11]),
        masked("switched networks", "digit of the brightness", "a digit of the mean brightness chooses the network",
               lambda net: Switched(net, zoo(MOBILENET), by_last_digit), [ALEXNET]),
        masked("switched networks", "early exit", "a second, robust network answers where the first is not certain",
               lambda net: Switched(net, zoo(ROBUST), by_confidence), [VGG]),
    ]  # fmt: skip
    reworded = [
        masked(family, mask, made, partial(Reworded, change=change), bases)
        for family, mask, made, change, bases in TABLE
    ]
    return [model for models in saturated + reworded for model in models]


TABLE: Final[list[tuple[str, str, str, Change, list[str]]]] = [
    ("hidden scores", "winner's logit", "only the winner's logit is shown, the others are constant", winners_logit,
        [ROBUST, VGG]),
    ("hidden scores", "winner's probability", "only the winner's probability is shown", winners_probability, [ROBUST,
        SYMBOLS_16]),
    ("hidden scores", "two winners", "only the two largest logits are shown", two_winners, [ROBUST]),
    ("labels as scores", "one-hot", "the output is a one-hot vector", label_only, [VGG, SYMBOLS_11]),
    ("labels as scores", "sharp softmax", "a softmax of the logits times 1e4", soft_label, [ALEXNET]),
    ("labels as scores", "ranks", "the output is the rank of each class", ranks, [RESNET]),
    ("clipped logits", "clipped", "the logits are scaled and clipped", clipped(4.0), [ROBUST, VGG]),
    ("rounded logits", "steps of 1", "the logits are rounded", steps_of(1.0), [VGG]),
    ("rounded logits", "steps of 2", "the logits are rounded", steps_of(2.0), [SYMBOLS]),
    ("limits of the number format", "plus 3e7", "a constant of 3e7 is added to the logits", shifted(3e7), [RESNET]),
    ("limits of the number format", "float16 range", "the logits leave the range of float16", half_range, [ALEXNET]),
    ("temperature", "huge logits", "logits times 1e4, as after distillation", scaled(1e4), [VGG, SYMBOLS]),
    ("temperature", "tiny logits", "logits times 1e-7", scaled(1e-7), [ROBUST]),
    ("probabilities", "sharp probabilities", "probabilities of sharpened logits are returned", probabilities, [ROBUST,
        TEXTURES]),
    ("probabilities", "floored logarithms", "logarithms of probabilities with a floor", floored, [CERTIFIED]),
    ("code words", "48 signs", "the signs of projections are compared with code words", codewords(10), [VGG]),
    ("code words", "48 signs", "the signs of projections are compared with code words", codewords(16), [SYMBOLS_16]),
]  # fmt: skip
