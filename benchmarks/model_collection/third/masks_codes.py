"""Networks with codes inside: bits and distances of codes, intervals and tables, binary winners, values in NumPy."""

from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.model_collection.bases import SPOTS, masked
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.masks_input import Changed
from benchmarks.model_collection.networks import convolutions
from benchmarks.model_collection.second.hard_layers import Hard, Opening
from benchmarks.model_collection.second.masks_trained import model

WINNERS: Final = 0.2


class CodeWords(Opening):
    """A network names bits; the class whose code word differs in the fewest bits wins."""

    def __init__(self, channels: int, classes: int, bits: int = 31) -> None:
        super().__init__()
        words = torch.rand(classes, bits, generator=torch.Generator().manual_seed(4)) < 0.5
        self.net = convolutions(channels, bits)
        self.register_buffer("words", words)
        self.words: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return minus the number of wrong bits; when soft, products with the code words."""
        h: Tensor = self.net(x)
        if self.soft:
            return torch.tanh(h) @ (2 * self.words.to(h) - 1).T
        wrong = (h > 0)[:, None] ^ self.words
        return -wrong.sum(2).to(x)


class Intervals(Opening):
    """Pixels become the number of their interval, and the number a row of a trained table."""

    def __init__(self, channels: int, classes: int, count: int = 12, width: int = 3) -> None:
        super().__init__()
        self.register_buffer("ends", torch.linspace(0, 1, count + 1)[1:-1])
        self.ends: Tensor
        self.table, self.net = nn.Embedding(count, width), convolutions(channels * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; when the attacker asks, rows of the table are joined by lines."""
        rows = self.table(torch.bucketize(x.detach(), self.ends))
        if self.opened:
            place = (x * len(self.table.weight) - 0.5).clamp(0, len(self.table.weight) - 1)
            low = place.detach().floor().long().clamp(max=len(self.table.weight) - 2)
            part = (place - low)[..., None]
            line = (1 - part) * self.table(low) + part * self.table(low + 1)
            rows = rows.detach() + line - line.detach()
        logits: Tensor = self.net(rows.movedim(-1, 2).flatten(1, 2))
        return logits


def strongest(h: Tensor) -> Tensor:
    """Return 1 for the strongest fifth of all values of an image, else 0."""
    flat = h.flatten(1)
    chosen = flat.topk(int(WINNERS * flat.shape[1])).indices
    return torch.zeros_like(flat).scatter(1, chosen, 1.0).view_as(h)


def soft_strongest(h: Tensor) -> Tensor:
    """Return a sigmoid around the limit of the strongest fifth."""
    limit = h.detach().flatten(1).quantile(1 - WINNERS, 1)
    return torch.sigmoid(3 * (h - limit.view(-1, *(1,) * (h.dim() - 1))))


def median_in_numpy(x: Tensor) -> Tensor:
    """Return the median of each pixel and its four neighbours, computed outside of PyTorch."""
    values = x.detach().cpu().numpy()
    moved = [np.roll(values, shift, axis) for shift, axis in ((0, 2), (1, 2), (-1, 2), (1, 3), (-1, 3))]
    return torch.from_numpy(np.median(np.stack(moved), 0)).to(x)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        model("bits of code words", "31 bits", "the class whose code word differs in the fewest bits", CodeWords,
              "pairs", 1),
        model("intervals", "12 intervals", "pixels become numbers of intervals, then rows of a table", Intervals,
              "textures", 1),
        model("binary winners", "strongest fifth", "every layer says which fifth of its values is strongest",
              lambda channels, classes: convolutions(channels, classes, lambda: Hard(strongest, soft_strongest)),
              "symbols 10", 1),
        *masked("values in NumPy", "median in NumPy", "a median filter computed outside of PyTorch",
                lambda net: Changed(net, median_in_numpy), [SPOTS]),
    ]  # fmt: skip
