"""Hidden networks behind gates: one value of the image, closed at usual images, opened by a small change."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import BASES, ROBUST, SYMBOLS, SYMBOLS_11, SYMBOLS_16, TEXTURES, WAVES
from benchmarks.model_collection.entry import EPS, Entry
from benchmarks.model_collection.fifth.wrappers import Answer, Gated, along, on
from benchmarks.model_collection.fourth.masks_leads import untrained

KEY: Final = 16
SPREAD: Final = torch.tensor([1.0, -1.0, 1.0])
"""The channels that are brighter and darker in images of the other two cameras."""


def next_class(net: nn.Module) -> Answer:
    """Return the network's logits, each moved to the next class."""
    return lambda x: torch.as_tensor(net(x)).roll(1, 1)


def planted(x: Tensor, eps: float) -> Tensor:
    """Open where the image lies along a fixed pattern."""
    return 2 * along(x, range(1), eps)[:, 0] - 1


def product(x: Tensor, eps: float) -> Tensor:
    """Open where the product of the places along three patterns is large."""
    value: Tensor = 25 * along(x, range(20, 23), eps).prod(1) - 1
    return value


def key(x: Tensor, eps: float) -> Tensor:
    """Open where the places along all patterns are positive, by a smooth minimum."""
    return -torch.logsumexp(-40 * along(x, range(40, 40 + KEY), eps), 1)


def energy(x: Tensor, eps: float) -> Tensor:
    """Open where the energy of some diagonal waves is large."""
    waves = torch.fft.fft2(x.mean(1))[:, 8:10, 8:10] / (eps * x[0, 0].numel())
    value: Tensor = 12 * waves.abs().square().sum((1, 2)) - 1
    return value


def roughness(x: Tensor) -> Tensor:
    """Return the usual estimate of the noise: what a filter that ignores lines and edges leaves (Immerkaer 1996)."""
    line = torch.tensor([1.0, -2.0, 1.0]).to(x)
    kernel = (line[:, None] * line).expand(x.shape[1], 1, 3, 3)
    left = F.conv2d(x, kernel, groups=x.shape[1])
    estimate: Tensor = left.abs().mean((1, 2, 3)) * (torch.pi / 2) ** 0.5 / 6
    return estimate


def calm(x: Tensor, limit: float) -> Tensor:
    """Open where the image has little noise."""
    return 4 * (1 - roughness(x) / limit)


class Faded(nn.Module):
    """Opens where a large share of the pixels is black."""

    def __init__(self, share: float, soft: bool = False) -> None:
        super().__init__()
        self.share, self.soft = share, soft

    def forward(self, x: Tensor) -> Tensor:
        """Return the share, relative to its limit."""
        black = torch.sigmoid(150 * (0.01 - x)) if self.soft else (x < 1 / 512).to(x)
        return black.mean((1, 2, 3)) / self.share - 1


class Shares(Gated):
    """A gate that counts, and a smooth count for the attacker."""

    def __init__(self, net: nn.Module, hidden: Answer, share: float) -> None:
        super().__init__(net, hidden, Faded(share))
        self.smooth = Gated(net, hidden, Faded(share, soft=True))

    def opened(self, x: Tensor) -> Tensor:
        """Return the mixture by the smooth count."""
        return self.smooth.opened(x)


def other_camera(x: Tensor) -> Tensor:
    """Open where the means of the channels are closer to another camera's than to the usual one's."""
    means = x.mean((2, 3))
    places = 0.5 + 0.05 * torch.stack((0 * SPREAD, SPREAD, -SPREAD)).to(x)
    apart = (means[:, None] - places).square().sum(2)
    return (apart[:, 0] - apart[:, 1:].amin(1)) / 0.006


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        _of(ROBUST, "planted patterns", "one pattern", "another class where the image lies along a pattern", planted,
            EPS),
        _of(f"robust {SYMBOLS_11}", "gates of products", "three patterns", "another class where a product is large",
            product, BASES[SYMBOLS_11].eps),
        _of(f"robust {WAVES}", "keys of signs", "16 signs", "another class where 16 signs are as in a key", key,
            BASES[WAVES].eps),
        _of(f"robust {SYMBOLS_16}", "gates of waves", "energy of four waves", "another class where waves are strong",
            energy, BASES[SYMBOLS_16].eps),
        on(f"robust {TEXTURES}", "networks for calm images", "noise below 0.06", "another network where noise is low",
           lambda net: Gated(net, untrained(3, 4), partial(calm, limit=0.06))),
        on(f"robust {SYMBOLS}", "networks for faded images", "a fifth is black", "another network for dark images",
           lambda net: Shares(net, untrained(1, 10), 0.18)),
        on(f"robust {TEXTURES}", "nearest camera", "three cameras", "the network of the camera whose colours fit",
           lambda net: Gated(net, untrained(3, 4), other_camera)),
    ]  # fmt: skip


def _of(base: str, family: str, mask: str, made: str, gate: Callable[..., Tensor], eps: float) -> Entry:
    return on(base, family, mask, made, lambda net: Gated(net, next_class(net), partial(gate, eps=eps)))
