"""What happens to pixels before a network: palettes, codes, wrap-around, number formats, and two random changes."""

from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import ALEXNET, MOBILENET, SYMBOLS, TEXTURES, WAVES
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fifth.masks_heads import clustered
from benchmarks.model_collection.fifth.wrappers import OF_PART, on
from benchmarks.model_collection.fourth.wrappers import Seen
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.masks_input import Changed
from benchmarks.model_collection.networks import convolutions
from benchmarks.model_collection.second.hard_layers import Hard
from benchmarks.model_collection.second.masks_trained import model
from benchmarks.model_collection.truth import Masked

WRAP: Final = 0.85
SCALE: Final = 256 * 255


def in_palette(count: int) -> Callable[[Tensor], Tensor]:
    """Return a function that gives each pixel the mean colour of its cluster, and smooths edges a little."""

    def change(x: Tensor) -> Tensor:
        pixels = x.detach().flatten(2).transpose(1, 2)
        order = pixels.sum(2).argsort(1)[..., None].expand_as(pixels)
        colours = clustered(pixels.gather(1, order), count, 4)
        nearest = torch.cdist(pixels, colours).argmin(2)[..., None].expand_as(pixels)
        flat = colours.gather(1, nearest).transpose(1, 2).reshape(x.shape)
        return 0.95 * flat + 0.05 * F.avg_pool2d(F.pad(x, (2,) * 4, mode="replicate"), 5, 1)

    return change


class GrayCode(nn.Module):
    """Each pixel becomes the bits of its Gray code; blurred pixels stay as they are."""

    def __init__(self, channels: int, classes: int, bits: int = 4) -> None:
        super().__init__()
        self.bits, self.net = bits, convolutions(channels * (bits + 1), classes)
        self.hard = Hard(lambda h: torch.where(h > 0, 1.0, -1.0).to(h), lambda h: torch.tanh(2 * h))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        bits = [self.hard(-torch.cos(2**number * torch.pi * x)) for number in range(self.bits)]
        calm = F.avg_pool2d(F.pad(x, (3,) * 4, mode="replicate"), 7, 1)
        logits: Tensor = self.net(torch.cat((*bits, calm), 1))
        return logits


def wrapped(x: Tensor) -> Tensor:
    """Return pixels that lose 1 above a limit, as whole numbers of 8 bits do after an offset."""
    return torch.where(x > WRAP, x - 1, x)


def soft_wrapped(x: Tensor) -> Tensor:
    """Return pixels that fall smoothly around the limit."""
    return x - torch.sigmoid(40 * (x - WRAP))


class HalfPrecision(Masked):
    """Pixels as float16 numbers in a range of their own; small slopes underflow on the way back."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net((x * SCALE).half().float() / SCALE)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits in float32."""
        logits: Tensor = self.net(x)
        return logits


class MixedIn(Masked):
    """The mean answer for mixtures of the image with stored ones, drawn anew (Pang et al. 2020)."""

    draws = 8

    def __init__(self, net: nn.Module, base: str, share: float, count: int = 3) -> None:
        super().__init__()
        self.net, self.share, self.count = net, share, count
        self.register_buffer("stored", images_of(OF_PART[base].images)[0][-200:].clone())
        self.stored: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean probabilities of some mixtures."""
        draws = torch.randint(len(self.stored), (self.count, len(x)))
        mixtures = [self.share * x + (1 - self.share) * self.stored[rows].to(x) for rows in draws]
        return torch.stack([torch.as_tensor(self.net(mixture)).softmax(1) for mixture in mixtures]).mean(0)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logarithm of the mean."""
        return (self.forward(x) + 1e-6).log()


def drawn(x: Tensor, low: float, high: float) -> Tensor:
    """Return one number per image, drawn between two limits."""
    return (low + (high - low) * torch.rand(len(x), 1, 1, 1)).to(x)


BARRAGE: Final[tuple[Callable[[Tensor], Tensor], ...]] = (
    lambda x: x.clamp(min=1e-3) ** drawn(x, 0.7, 1.4),
    lambda x: (x * drawn(x, 6, 20)).round() / 12,
    lambda x: x + 0.06 * torch.randn_like(x),
    lambda x: x.roll(tuple(int(move) for move in torch.randint(-1, 2, (2,))), (2, 3)),
    lambda x: F.avg_pool2d(F.pad(x, (1,) * 4, mode="replicate"), 3, 1),
    lambda x: (x - 0.5) * drawn(x, 0.7, 1.2) + 0.5 + drawn(x, -0.08, 0.08),
    lambda x: x * (torch.rand_like(x) > 0.08),
)


def barrage(x: Tensor) -> Tensor:
    """Return images after three of the changes, drawn with their order (Raff et al. 2019)."""
    for number in torch.randperm(len(BARRAGE))[:3].tolist():
        x = BARRAGE[number](x)
    return x


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        on(MOBILENET, "palettes", "12 colours", "each pixel gets the mean colour of its cluster",
           lambda net: Seen(net, in_palette(12))),
        model("Gray codes", "4 bits", "pixels become the bits of their Gray code", GrayCode, "symbols 16", 1),
        on(f"robust {WAVES}", "wrap-around", "above 0.85", "bright pixels wrap around", lambda net: Changed(net,
           wrapped, soft_wrapped)),
        on(ALEXNET, "underflow in float16", "pixels times 65280", "small slopes underflow in float16", HalfPrecision),
        on(TEXTURES, "mixed in", "three mixtures", "mixtures with stored images that are drawn",
           lambda net: MixedIn(net, TEXTURES, 0.6), asked="majority"),
        on(SYMBOLS, "barrages of changes", "three of seven", "three changes are drawn with their order",
           lambda net: Seen(net, barrage, 8), asked="majority"),
    ]  # fmt: skip
