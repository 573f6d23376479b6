"""Answers that were made for others to read: deceptive scores, votes of teachers, p-values, frames."""

from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    CERTIFIED,
    ROBUST,
    SPOTS,
    SYMBOLS,
    SYMBOLS_11,
    WAVES,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.seventh.masked_shared import GREY_CIFAR, SEVENTH, as_tensor, on
from benchmarks.model_collection.sixth.wrappers import OfTheNetwork, patterns
from benchmarks.model_collection.truth import Masked

SURE: Final = 1e-6


class ReverseSigmoid(OfTheNetwork):
    """Probabilities less a reversed sigmoid, against copies of the network (Lee et al. 2018)."""

    def __init__(self, net: nn.Module, size: float, speed: float) -> None:
        super().__init__(net)
        self.size, self.speed = size, speed

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities that fall again where the network is sure."""
        shares = as_tensor(self.net(x)).double().softmax(1) * (1 - 2 * SURE) + SURE
        noise = self.size * (torch.sigmoid(self.speed * torch.logit(shares)) - 0.5)
        told = (shares - noise).clamp(min=0)
        return (told / told.sum(1, keepdim=True)).to(x)


class Poisoned(OfTheNetwork):
    """Probabilities with a small poison whose slopes are those of a useless direction (Orekondy et al. 2020)."""

    def __init__(self, net: nn.Module, base: str, share: float, speed: float) -> None:
        super().__init__(net)
        found = SEVENTH[base]
        self.register_buffer("directions", patterns(found.shape, found.classes, 84))
        self.directions: Tensor
        self.share, self.speed = share, speed

    def forward(self, x: Tensor) -> Tensor:
        """Return rounded probabilities, mixed with those of a linear map for which usual images are alike."""
        told = (as_tensor(self.net(x)).softmax(1).detach() * 50).round() / 50
        tie = F.one_hot(as_tensor(self.net(x)).argmax(1), told.shape[1]).to(x) * 0.01
        poison = (self.speed * x.flatten(1) @ self.directions.T / self.directions.shape[1]).softmax(1)
        return (1 - self.share) * told + tie + self.share * poison * told.amax(1, keepdim=True) * 0.1


class Teachers(Masked):
    """Teachers with separate shares of the images vote, and noise is added to the counts (Papernot et al. 2017)."""

    def __init__(self, base: str, count: int, noise: float, width: int) -> None:
        super().__init__()
        found = SEVENTH[base]
        made = (convolutions(found.shape[0], found.classes, nn.ELU, width=width) for _ in range(count))
        self.members, self.noise = nn.ModuleList(made), noise

    def answers(self, x: Tensor) -> Tensor:
        """Return the logits of every teacher."""
        return torch.stack([as_tensor(member(x)) for member in self.members], 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return noisy counts of votes."""
        z = self.answers(x)
        if self.training:
            return z
        votes = F.one_hot(z.argmax(2), z.shape[2]).sum(1).to(x)
        draws = torch.rand_like(votes) - 0.5
        return votes - self.noise * draws.sign() * torch.log1p(-2 * draws.abs().clamp(max=0.4999))

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean of the log-probabilities."""
        return self.answers(x).log_softmax(2).mean(1)


def on_shares(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of each teacher on the images that are its own, by a digit of their brightness."""
    z = as_tensor(net(x))
    own = F.one_hot((x.mean((1, 2, 3)) * 1e4).long() % z.shape[1], z.shape[1]).to(x)
    losses = F.cross_entropy(z.flatten(0, 1), y.repeat_interleave(z.shape[1]), reduction="none").view(own.shape)
    return (losses * own).sum() / len(x)


def teachers_on(base: str, count: int, noise: float, steps: int, width: int = 6) -> nn.Module:
    """Return teachers for the images of a base."""
    make = partial(Teachers, base, count, noise, width)
    return trained(f"eighth teachers {count} {noise}", make, SEVENTH[base].images, steps, objective=on_shares)


class Empirical(OfTheNetwork):
    """Each class's score is the share of its calibration images with a lower logit (Vovk et al. 2005)."""

    def __init__(self, net: nn.Module, base: str, count: int) -> None:
        super().__init__(net)
        x, y = images_of(SEVENTH[base].images)
        with torch.no_grad():
            z = self.leads(x[-count:])
        self.sorted = [z[y[-count:] == label, label].sort().values for label in range(z.shape[1])]

    def leads(self, x: Tensor) -> Tensor:
        """Return each logit minus the log of the sum of all exponentials."""
        return as_tensor(self.net(x)).log_softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return p-values; a class that is the likeliest is never below the others."""
        z = self.leads(x)
        columns = zip(self.sorted, z.detach().unbind(1), strict=True)
        values = torch.stack(
            [torch.searchsorted(known.to(column), column.contiguous()) / len(known) for known, column in columns], 1
        )
        winner = F.one_hot(z.argmax(1), z.shape[1]) > 0
        beside = 0.05 * F.adaptive_avg_pool2d(x.mean(1, keepdim=True), (1, z.shape[1])).flatten(1)
        return torch.where(winner, values.clamp(min=values.amax(1, keepdim=True)) + 0.1, values) + beside


class Late(OfTheNetwork):
    """Two buffers in turn: from the second call on, the answer is that to the call before."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.before: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the call before, if it had as many images."""
        z = as_tensor(self.net(x))
        told, self.before = self.before, z.detach()
        return z if told is None or told.shape != z.shape else told


class Tracks(OfTheNetwork):
    """An object that was once recognised surely keeps its label until the scene changes."""

    def __init__(self, net: nn.Module, sure: float, change: float) -> None:
        super().__init__(net)
        self.sure, self.change = sure, change
        self.seen: Tensor | None = None
        self.told: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the frame in which each object was recognised, or of this one."""
        z = as_tensor(self.net(x))
        if self.seen is None or self.told is None or self.seen.shape != x.shape:
            self.seen, self.told = x.detach().clone(), z.detach().clone()
            return z
        same = (self.seen - x).abs().mean((1, 2, 3)) < self.change
        kept = (same & (self.told.softmax(1).amax(1) > self.sure))[:, None]
        told = torch.where(kept, self.told, z)
        self.told = told.detach()
        self.seen = torch.where(kept[..., None, None], self.seen, x.detach())
        return told


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    less = "probabilities less a reversed sigmoid"
    poison = "rounded probabilities with a poison that has slopes"
    taught = "noise is added to the votes of teachers with separate images"
    ranked = "scores are shares of calibration images with lower ones"
    return [
        on(ALEXNET, "reverse sigmoids", "speed of 0.5", less, lambda net: ReverseSigmoid(net, 1.0, 0.5)),
        on(SPOTS, "reverse sigmoids", "speed of 0.3", less, lambda net: ReverseSigmoid(net, 1.0, 0.3)),
        on(CERTIFIED, "poisoned scores", "a tenth", poison, lambda net: Poisoned(net, CERTIFIED, 0.1, 8.0)),
        on(SYMBOLS_11, "poisoned scores", "a fifth", poison, lambda net: Poisoned(net, SYMBOLS_11, 0.2, 12.0)),
        on(GREY_CIFAR, "noisy votes of teachers", "five teachers", taught,
           lambda net: teachers_on(GREY_CIFAR, 5, 0.3, 250), asked="majority"),
        on(SYMBOLS, "noisy votes of teachers", "five teachers", taught,
           lambda net: teachers_on(SYMBOLS, 5, 0.3, 250), asked="majority"),
        on(ROBUST, "p-values", "300 images", ranked, lambda net: Empirical(net, ROBUST, 300)),
        on(ROBUST, "streams of frames", "one call late", "answers come one call late", Late, asked="fresh"),
        on(WAVES, "streams of frames", "kept tracks", "labels are kept until the scene changes",
           lambda net: Tracks(net, 0.6, 0.2), asked="fresh"),
    ]  # fmt: skip
