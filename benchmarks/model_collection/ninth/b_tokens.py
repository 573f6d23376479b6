"""Honest networks over patches, of published designs at small size; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.ninth.b_training import Lesson, one


class Attention(nn.Module):
    """Attention of two heads and a dense pair, each behind a norm and with a learned scale (Touvron et al. 2021)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.scales = nn.Parameter(torch.full((2, width), 0.3))

    def forward(self, h: Tensor) -> Tensor:
        """Return the mixed places."""
        count, places, width = h.shape
        parts = self.mix(self.first(h)).view(count, places, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        h = h + self.scales[0] * self.out(mixed.transpose(1, 2).reshape(h.shape))
        wide: Tensor = h + self.scales[1] * self.dense(self.second(h))
        return wide


class SequencePool(nn.Module):
    """Filters make the tokens, and a learned weight per token makes the answer (Hassani et al. 2021)."""

    def __init__(self, channels: int, classes: int, width: int = 32) -> None:
        super().__init__()
        first = (nn.Conv2d(channels, width // 2, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2))
        self.see = nn.Sequential(*first, nn.Conv2d(width // 2, width, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(Attention(width), Attention(width), nn.LayerNorm(width))
        self.weigh, self.last = nn.Linear(width, 1), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the weighed tokens."""
        h = self.blocks(self.see(x).flatten(2).transpose(1, 2))
        logits: Tensor = self.last((self.weigh(h).softmax(1) * h).sum(1))
        return logits


class Pooled(nn.Module):
    """Means over neighbours take the place of attention (Yu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(1, width), nn.GroupNorm(1, width)
        self.dense = nn.Sequential(nn.Conv2d(width, 3 * width, 1), nn.GELU(), nn.Conv2d(3 * width, width, 1))

    def forward(self, h: Tensor) -> Tensor:
        """Return the mixed maps."""
        normed = self.first(h)
        h = h + F.avg_pool2d(normed, 3, 1, 1, count_include_pad=False) - normed
        wide: Tensor = h + self.dense(self.second(h))
        return wide


def pooled(channels: int, classes: int, width: int = 24) -> nn.Module:
    """Patches, blocks of means with a smaller map between them, and a mean over all places."""
    first = (nn.Conv2d(channels, width, 3, 2, 1), Pooled(width), Pooled(width))
    second = (nn.Conv2d(width, 2 * width, 3, 2, 1), Pooled(2 * width), nn.GroupNorm(1, 2 * width))
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes))


class GateOfPlaces(nn.Module):
    """Half of the features are multiplied by a mix over places of the other half (Liu et al. 2021)."""

    def __init__(self, width: int, places: int) -> None:
        super().__init__()
        self.norm, self.gate_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.enter, self.leave = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.places = nn.Linear(places, places)
        nn.init.normal_(self.places.weight, std=0.02)
        nn.init.ones_(self.places.bias)

    def forward(self, h: Tensor) -> Tensor:
        """Return the gated features."""
        kept, other = F.gelu(self.enter(self.norm(h))).chunk(2, -1)
        gate = self.places(self.gate_norm(other).transpose(1, 2)).transpose(1, 2)
        gated: Tensor = h + self.leave(kept * gate)
        return gated


class GatedPlaces(nn.Module):
    """Two blocks of gates over patches and a mean."""

    def __init__(self, channels: int, patch: int, places: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.blocks = nn.Sequential(GateOfPlaces(width, places), GateOfPlaces(width, places), nn.LayerNorm(width))
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.last(self.blocks(self.embed(x).flatten(2).transpose(1, 2)).mean(1))
        return logits


class Rescaled(nn.Module):
    """Divides by the root mean square (Zhang and Sennrich 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, h: Tensor) -> Tensor:
        """Return the rescaled features."""
        return self.scale * h * (h.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


class Causal(nn.Module):
    """Columns read as words of a sentence: each attends to those before it, the last one answers (Touvron 2023)."""

    def __init__(self, values: int, length: int, classes: int, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(values, width), nn.Parameter(0.1 * torch.randn(length, width))
        self.norms = nn.ModuleList(Rescaled(width) for _ in range(2 * depth + 1))
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(depth))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(depth))
        self.narrow = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(depth))
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the last column."""
        h = self.embed(x.flatten(1, 2).transpose(1, 2) - 0.5) + self.place
        for number, (mix, wide, narrow) in enumerate(zip(self.mix, self.wide, self.narrow, strict=True)):
            query, key, value = mix(self.norms[2 * number](h)).chunk(3, -1)
            h = h + F.scaled_dot_product_attention(query, key, value, is_causal=True)
            gate, content = wide(self.norms[2 * number + 1](h)).chunk(2, -1)
            h = h + narrow(F.silu(gate) * content)
        logits: Tensor = self.last(self.norms[-1](h[:, -1]))
        return logits


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("tokens of filters", "symbols 10", 11, lambda: SequencePool(1, 10), Lesson(200, 6, 1, 4e-3, 0.05)),
    ("means for attention", "textures", 18, lambda: pooled(3, 4), Lesson(150, 10, 2, 4e-3)),
    ("gates between places", "spots", 6, lambda: GatedPlaces(5, 4, 16, 20), Lesson(300, 0, 0, 4e-3, 0.1)),
    ("sentences of columns", "textures", 8, lambda: Causal(48, 16, 4), Lesson(250, 3, 1, 4e-3)),
]  # fmt: skip
