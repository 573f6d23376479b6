"""EfficientNet (Tan & Le 2019, arXiv:1905.11946), and its Lite variants for small devices."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadWeights
from robustassay.models.architectures.imagenet.layers import Bottleneck, Chain, SameConv, halved

# Expansion, channels, repetitions, kernel and first stride (the paper's Table 1).
STAGES = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)
STEM, TOP = 32, 1280
EPSILON: Final = 1e-3
"""The epsilon of the batch norms of the Lite networks."""


@dataclass(frozen=True)
class EfficientNet:
    """Inverted bottlenecks, scaled in width and depth.

    Lite networks keep stem, first and last stage as they are, do not weigh channels, and use relu6 for swish.
    """

    width: float = 1.0
    depth: float = 1.0
    lite: bool = False

    def build(self, side: int, classes: int) -> nn.Module:
        """Return a network with fresh weights for images of this size."""
        activation = F.relu6 if self.lite else F.silu
        before, blocks = STEM, []
        stem, side = SameConv(3, before, 3, side, 2), halved(side, 2)
        for at, (expansion, base, repeats, kernel, first) in enumerate(STAGES):
            channels = self.scaled(base)
            for stride in (first, *[1] * (self.repeated(repeats, at) - 1)):
                squeezed = 0 if self.lite else max(1, before // 4)
                blocks.append(Bottleneck(before, channels, kernel, stride, expansion, side, activation, squeezed))
                before, side = channels, halved(side, stride)
        return Chain(stem, [*blocks], SameConv(before, TOP, 1, side), nn.Linear(TOP, classes), activation)

    def scaled(self, channels: int) -> int:
        """Return the scaled number of channels, rounded to a multiple of eight."""
        wanted = channels * self.width
        found = max(8, int(wanted + 4) // 8 * 8)
        return found if found >= 0.9 * wanted else found + 8

    def repeated(self, repeats: int, stage: int) -> int:
        """Return the number of blocks of a stage."""
        ends = self.lite and stage in (0, len(STAGES) - 1)
        return repeats if ends else math.ceil(repeats * self.depth)


def from_lite(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of the published Lite files, and fold each batch norm into the convolution before it."""
    names = {"_conv_stem": "stem", "_conv_head": "top"}
    parts = {"_expand_conv": ("expand", "_bn0"), "_depthwise_conv": ("dw", "_bn1"), "_project_conv": ("proj", "_bn2")}
    norms = {"_conv_stem": "_bn0", "_conv_head": "_bn1"}
    found: dict[str, Tensor] = {}
    try:
        for key, weight in published.items():
            name, _, kind = key.rpartition(".")
            place, _, part = name.rpartition(".")
            if part == "_fc":
                found[f"fc.{kind}"] = weight.float()
            elif kind == "weight" and name in names:
                found |= _folded(names[name], weight, published, norms[name])
            elif kind == "weight" and part in parts:
                ours, norm = parts[part]
                found |= _folded(f"{place.removeprefix('_')}.{ours}", weight, published, f"{place}.{norm}")
    except KeyError as error:
        raise BadWeights(f"The weights lack {error}, which EfficientNet-Lite has: fetch the file again.") from error
    return found


def _folded(name: str, weight: Tensor, published: Mapping[str, Tensor], norm: str) -> dict[str, Tensor]:
    gain, shift, mean, variance = (
        published[f"{norm}.{part}"].double() for part in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gain / (variance + EPSILON).sqrt()
    return {
        f"{name}.weight": (weight.double() * scale.view(-1, 1, 1, 1)).float(),
        f"{name}.bias": (shift - mean * scale).float(),
    }
