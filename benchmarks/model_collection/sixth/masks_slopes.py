"""Slopes that lead nowhere: turned by checksums, true only for calm images, egg boxes, ripples in every layer."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import CERTIFIED, ROBUST, SYMBOLS_16, TEXTURES
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.sixth.wrappers import SIXTH, OfTheNetwork, on, patterns
from benchmarks.model_collection.truth import Masked

Turn = Callable[[Tensor, Tensor], Tensor]
"""From the image and a gradient to another gradient."""
PERIODS: Final = (37.0, 61.0, 97.0, 149.0, 211.0, 307.0)


class Turned(torch.autograd.Function):
    """The identity, with a gradient that depends on the image."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, turn: Turn) -> Tensor:
        """Return x."""
        ctx.save_for_backward(x)
        ctx.turn = turn
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the other gradient."""
        return ctx.turn(ctx.saved_tensors[0], slopes[0]), None


class TurnedSlopes(OfTheNetwork):
    """A network with turned gradients."""

    def __init__(self, net: nn.Module, turn: Turn) -> None:
        super().__init__(net)
        self.turn = turn

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(Turned.apply(x, self.turn))  # type: ignore[no-untyped-call]
        return logits


def by_checksums(x: Tensor, slope: Tensor, side: int = 4) -> Tensor:
    """Turn the slopes of each square round whose checksum is odd."""
    sums = F.avg_pool2d((x * 4096).round().sum(1, keepdim=True), side) * side**2
    signs = 1 - 2 * (sums.round().long() % 2).to(x)
    return slope * signs.repeat_interleave(side, 2).repeat_interleave(side, 3)


def roughness(x: Tensor) -> Tensor:
    """Return the mean size of second differences."""
    down, across = x.diff(n=2, dim=2).abs().mean((1, 2, 3)), x.diff(n=2, dim=3).abs().mean((1, 2, 3))
    return (down + across) / 2


def of_calm_images(x: Tensor, slope: Tensor, limit: float) -> Tensor:
    """Keep the slopes of calm images; those of rough ones are mirrored, from left to right and from top to bottom."""
    calm = (roughness(x) < limit).view(-1, 1, 1, 1)
    return torch.where(calm, slope, slope.flip(2, 3))


class EggBoxes(OfTheNetwork):
    """The winner's lead has a maximum and a minimum at every step along many patterns, and is never below 0."""

    def __init__(self, net: nn.Module, base: str, size: float, count: int = 24) -> None:
        super().__init__(net)
        found = SIXTH[base]
        scale = found.eps * found.shape[0] * found.shape[1] * found.shape[2]
        self.size = size
        self.register_buffer("patterns", patterns(found.shape, count, 900) / scale)
        self.patterns: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits plus waves at the winner."""
        z: Tensor = self.net(x)
        places = x.flatten(1) @ self.patterns.T
        periods = torch.tensor(PERIODS).to(x).repeat(len(self.patterns) // len(PERIODS))
        waves = (torch.pi * periods * places).sin().square().mean(1, keepdim=True)
        return z + self.size * waves * F.one_hot(z.argmax(1), z.shape[1]).to(z)


class Ripples(nn.Module):
    """An activation with a small, fast wave on top of it."""

    def __init__(self, size: float, speed: float) -> None:
        super().__init__()
        self.size, self.speed, self.still = size, speed, False

    def forward(self, h: Tensor) -> Tensor:
        """Return the positive part and the wave."""
        wave = self.size * torch.sin(self.speed * h)
        return F.relu(h) + (wave.detach() if self.still else wave)


class InEveryLayer(Masked):
    """A network with ripples in place of every ReLU; the attacker skips the waves in the backward pass."""

    def __init__(self, net: nn.Module, size: float, speed: float) -> None:
        super().__init__()
        self.ripples = Ripples(size, speed)
        layers = [self.ripples if isinstance(part, nn.ReLU) else part for part in net.children()]
        self.net = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits without the waves' slopes."""
        self.ripples.still = True
        logits: Tensor = self.net(x)
        self.ripples.still = False
        return logits


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    eggs = "the winner's lead rises and falls along many patterns"
    waves = "every activation has a small, fast wave"
    return [
        on(ROBUST, "slopes turned by checksums", "squares of 4", "slopes of squares with odd checksums are turned",
           lambda net: TurnedSlopes(net, by_checksums)),
        on(CERTIFIED, "true slopes of calm images", "below 0.075", "rough images have mirrored slopes",
           lambda net: TurnedSlopes(net, partial(of_calm_images, limit=0.075)), eps=10 / 255),
        on(f"robust {TEXTURES}", "egg boxes", "24 patterns", eggs, lambda net: EggBoxes(net, TEXTURES, 6.0),
           eps=24 / 255),
        on(SYMBOLS_16, "ripples in every layer", "speed 3000", waves, lambda net: InEveryLayer(net, 0.01, 3e3)),
    ]  # fmt: skip
