"""The truth about a masked model: the attack of someone who knows the trick.

A masked model has two sides. `forward` is what is deployed and what decides; `opened` is what an attacker who read its
code would differentiate instead: the network behind the mask, the layers with their rounding skipped in the backward
pass, the average over draws. The attack climbs several losses on the open side, L∞, and counts an image as broken as
soon as the deployed side misclassifies it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry


class Loss(Protocol):
    """A loss of logits of some rows."""

    def __call__(self, z: Tensor, rows: Tensor) -> Tensor:
        """Return the sum over these rows."""


Finish = Callable[[Tensor], Tensor]

STEPS: Final = 40
TARGETS: Final = 9
FEW: Final = 3
"""Targets for a random model, whose gradients cost many passes."""
CONFIRMING: Final = 128
"""Calls that confirm a success on a random model: of the many majorities along a climb, some are luck."""


class Masked(nn.Module, ABC):
    """A deployed model with an open side."""

    draws: int = 1
    """Passes through the open side that are averaged for one gradient."""

    @abstractmethod
    def opened(self, x: Tensor) -> Tensor:
        """Return logits whose gradient is of use to the attacker."""

    def finished(self, x: Tensor) -> Tensor:
        """Return the images that the attacker submits in place of those that the climb has reached."""
        return x


def broken_by_truth(entry: Entry, x: Tensor, y: Tensor, steps: int = STEPS) -> Tensor:
    """Return which images someone who knows the trick breaks."""
    model = entry.build()
    if isinstance(model, Masked):
        return broken_by(entry, model, model.opened, x, y, steps, model.finished)
    return broken_by(entry, model, model, x, y, steps)


def broken_by_plain(entry: Entry, x: Tensor, y: Tensor, steps: int = STEPS) -> Tensor:
    """Return which images the same attack breaks that differentiates the deployed side."""
    model = entry.build()
    return broken_by(entry, model, model, x, y, steps)


def unchanged(x: Tensor) -> Tensor:
    """Return the same images."""
    return x


def broken_by(
    entry: Entry,
    model: nn.Module,
    side: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    steps: int,
    finish: Finish = unchanged,
) -> Tensor:
    """Climb one loss after the other on the images that still stand."""
    broken = torch.zeros(len(x), dtype=torch.bool)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = getattr(model, "draws", 1)
        judge = entry.build()
        for number, loss in enumerate(losses(side, x, y, TARGETS if draws == 1 else FEW)):
            rows = (~broken).nonzero().squeeze(1)
            if len(rows):
                climb = Climb(entry, judge, side, draws, x[rows], y[rows], finish)
                broken[rows] = climb.run(partial(loss, rows=rows), steps, random_start=number > 0)
    return broken


def losses(side: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, targets: int) -> Iterator[Loss]:
    """Yield losses to climb: cross-entropy, the margin, and the margin towards each of the likeliest wrong classes."""
    with torch.no_grad():
        ranks = side(x).scatter(1, y[:, None], -torch.inf).argsort(1, descending=True)
    yield lambda z, rows: F.cross_entropy(z, y[rows], reduction="sum")
    yield lambda z, rows: -margins(z, y[rows]).sum()
    for place in range(min(targets, ranks.shape[1] - 1)):
        yield lambda z, rows, place=place: towards(z, y[rows], ranks[rows, place]).sum()


def margins(z: Tensor, y: Tensor) -> Tensor:
    """Return the logit of the true class minus the largest other."""
    others = z.scatter(1, y[:, None], -torch.inf).amax(1)
    return z.gather(1, y[:, None]).squeeze(1) - others


def towards(z: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """Return the logit of the target minus that of the true class."""
    return (z.gather(1, target[:, None]) - z.gather(1, y[:, None])).squeeze(1)


class Climb:
    """Sign steps in the L∞ ball; the step size falls from 2 eps along a cosine."""

    def __init__(
        self,
        entry: Entry,
        judge: nn.Module,
        side: Callable[[Tensor], Tensor],
        draws: int,
        x0: Tensor,
        y: Tensor,
        finish: Finish,
    ) -> None:
        self.entry, self.judge, self.side, self.draws, self.x0, self.y = entry, judge, side, draws, x0, y
        self.finish = finish

    def run(self, loss: Callable[[Tensor], Tensor], steps: int, random_start: bool) -> Tensor:
        """Return which images were broken on the way."""
        x = self.projected(self.x0 + random_start * self.entry.eps * (2 * torch.rand_like(self.x0) - 1))
        broken = torch.zeros(len(x), dtype=torch.bool)
        every = 1 if self.entry.asked == "together" else max(1, steps // 4)
        angles = torch.linspace(0, torch.pi, steps)
        for number, angle in enumerate(angles):
            size = 2 * self.entry.eps * max(float(1 + torch.cos(angle)) / 2, 0.01)
            x = self.projected(x + size * self.slope(x, loss).sign())
            if (number + 1) % every == 0 or number == 0:
                broken |= self.is_broken(self.projected(self.finish(x)))
                if broken.all():
                    break
        return broken

    def is_broken(self, x: Tensor) -> Tensor:
        """Return which images are misclassified; a majority that may be luck is drawn again, from more calls."""
        broken: Tensor = self.entry.decisions(self.judge, x) != self.y
        if self.entry.asked == "majority" and broken.any():
            broken[broken.clone()] = self.entry.decisions(self.judge, x[broken], CONFIRMING) != self.y[broken]
        return broken

    def projected(self, x: Tensor) -> Tensor:
        """Return the closest image in the ball and in the pixel range."""
        eps = self.entry.eps
        return torch.minimum(torch.maximum(x, self.x0 - eps), self.x0 + eps).clamp(0, 1)

    def slope(self, x: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the gradient of the loss, averaged over draws; zero where there is none."""
        total = torch.zeros_like(x)
        for _ in range(self.draws):
            point = x.clone().requires_grad_(True)
            with torch.enable_grad():
                value = loss(self.side(point))
                if value.requires_grad:
                    (slope,) = torch.autograd.grad(value, point, allow_unused=True)
                    total += torch.zeros_like(x) if slope is None else slope.nan_to_num()
        return total
