"""Hidden answers inside the ball: patterns of each image, windows, parities, places of extreme pixels."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import PAIRS, ROBUST, SPOTS, SYMBOLS, TEXTURES
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.sixth.wrappers import SIXTH, on, patterns
from benchmarks.model_collection.truth import Masked


class Hidden(Masked):
    """A network whose answers move to the next class where a hidden condition holds."""

    def __init__(self, net: nn.Module, base: str) -> None:
        super().__init__()
        self.net, self.eps, self.shape = net, SIXTH[base].eps, SIXTH[base].shape

    @abstractmethod
    def holds(self, x: Tensor) -> Tensor:
        """Return for which images the condition holds."""

    def along(self, x: Tensor, signs: Tensor) -> Tensor:
        """Return how far each image lies along patterns; a change by eps along one adds 1."""
        return x.flatten(1) @ signs.to(x).T / (self.eps * x[0].numel())

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, moved by one class where the condition holds."""
        z: Tensor = self.net(x)
        return torch.where(self.holds(x)[:, None], z.roll(1, 1), z)

    def closeness(self, x: Tensor) -> Tensor:
        """Return a value that rises towards the condition; by default the attacker only finishes the image."""
        return x.detach().flatten(1).sum(1)

    def opened(self, x: Tensor) -> Tensor:
        """Return a mixture in which only the closeness has slopes."""
        z = torch.as_tensor(self.net(x)).detach()
        share = torch.sigmoid(self.closeness(x))[:, None]
        return share * z.roll(1, 1) + (1 - share) * z


class OwnPatterns(Hidden):
    """Each image has a pattern of its own, chosen by what is left of it at low resolution."""

    def __init__(self, net: nn.Module, base: str, count: int = 64, limit: float = 0.6, side: int = 4) -> None:
        super().__init__(net, base)
        self.limit, self.side = limit, side
        self.register_buffer("patterns", patterns(self.shape, count, 600))
        self.patterns: Tensor
        cells = self.shape[0] * (self.shape[1] // side) * (self.shape[2] // side)
        self.register_buffer("planes", torch.randn(cells, count, generator=torch.Generator().manual_seed(601)))
        self.planes: Tensor

    def place(self, x: Tensor) -> Tensor:
        """Return how far each image is along its own pattern."""
        small = F.avg_pool2d(x, self.side).flatten(1)
        small = small - small.mean(1, keepdim=True)
        own = (small.detach() @ self.planes.to(x)).argmax(1, keepdim=True)
        return self.along(x, self.patterns).gather(1, own).squeeze(1)

    def holds(self, x: Tensor) -> Tensor:
        """Hold far along the own pattern."""
        return self.place(x) > self.limit

    def closeness(self, x: Tensor) -> Tensor:
        """Rise along the own pattern."""
        return 6 * (self.place(x) - self.limit)


class Windows(Hidden):
    """The condition holds in a small window of the places along two patterns, and not beyond it."""

    def __init__(self, net: nn.Module, base: str, seed: int, low: float = 0.3, high: float = 0.42) -> None:
        super().__init__(net, base)
        self.low, self.high = low, high
        self.register_buffer("patterns", patterns(self.shape, 2, seed))
        self.patterns: Tensor

    def holds(self, x: Tensor) -> Tensor:
        """Hold where both places are in the window."""
        places = self.along(x, self.patterns)
        return ((places > self.low) & (places < self.high)).all(1)

    def closeness(self, x: Tensor) -> Tensor:
        """Rise towards the middle of the window."""
        middle = (self.low + self.high) / 2
        return 2 - 20 * (self.along(x, self.patterns) - middle).abs().sum(1)


class Parity(Hidden):
    """The condition holds where most pixels have odd values in 8 bits."""

    def __init__(self, net: nn.Module, base: str, share: float) -> None:
        super().__init__(net, base)
        self.share = share

    def holds(self, x: Tensor) -> Tensor:
        """Hold for odd images."""
        odd = (255 * x).round().long() % 2
        return odd.float().mean((1, 2, 3)) > self.share

    def finished(self, x: Tensor) -> Tensor:
        """Return the image with the nearest odd values."""
        return (2 * ((255 * x - 1) / 2).round() + 1) / 255


class ExtremePixels(Hidden):
    """The condition holds where both the brightest and the darkest pixel are at marked places."""

    def __init__(self, net: nn.Module, base: str, share: float) -> None:
        super().__init__(net, base)
        drawn = torch.rand(2, *self.shape, generator=torch.Generator().manual_seed(700)).flatten(1)
        self.register_buffer("marked", drawn < share)
        self.marked: Tensor

    def holds(self, x: Tensor) -> Tensor:
        """Hold for two marked places."""
        flat = x.flatten(1)
        return self.marked[0][flat.argmax(1)] & self.marked[1][flat.argmin(1)]

    def finished(self, x: Tensor) -> Tensor:
        """Return the image with the best marked pixels as bright and as dark as can be, and others held back."""
        flat = x.flatten(1)
        bright = flat.masked_fill(~self.marked[0], -1).max(1, keepdim=True)
        dark = flat.masked_fill(~self.marked[1], 2).min(1, keepdim=True)
        held = torch.where(flat >= bright.values, flat - self.eps, flat)
        held = torch.where(flat <= dark.values, flat + self.eps, held)
        held = held.scatter(1, bright.indices, bright.values + self.eps)
        return held.scatter(1, dark.indices, dark.values - self.eps).view_as(x)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    own = "another class far along a pattern that depends on the image"
    windows = "another class in a small window of two places"
    parity = "another class where most pixel values are odd"
    return [
        on(f"robust {SPOTS}", "patterns of each image", "64 patterns", own, lambda net: OwnPatterns(net, SPOTS)),
        on(f"robust {SYMBOLS}", "windows along patterns", "two patterns", windows,
           lambda net: Windows(net, SYMBOLS, 620)),
        on(ROBUST, "windows along patterns", "two patterns", windows, lambda net: Windows(net, ROBUST, 630)),
        on(f"robust {PAIRS}", "odd pixel values", "above 0.7", parity, lambda net: Parity(net, PAIRS, 0.7)),
        on(f"robust {TEXTURES}", "places of extreme pixels", "an eighth is marked",
           "another class where the brightest and the darkest pixel are at marked places",
           lambda net: ExtremePixels(net, TEXTURES, 0.12)),
    ]  # fmt: skip
