"""Models whose answer depends on more than the image: on batch mates, on earlier calls, on remembered images."""

import copy
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.model_collection.bases import ALEXNET, MOBILENET, RESNET, ROBUST, SYMBOLS, TEXTURES, VGG, masked
from benchmarks.model_collection.entry import EPS, Entry
from benchmarks.model_collection.masks_input import rounded
from benchmarks.model_collection.truth import Masked

ALONE: Final = 8
"""Up to so many images per call, the models that depend on the batch do not."""


class OfTheNetwork(Masked):
    """A model with a network whose own gradient the attacker uses."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def opened(self, x: Tensor) -> Tensor:
        """Return the network's logits."""
        logits: Tensor = self.net(x)
        return logits


class LargeBatchesRounded(OfTheNetwork):
    """Rounds the pixels in batches of more than 8."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(rounded(6)(x) if len(x) > ALONE else x)
        return logits


class LargeBatchesShared(OfTheNetwork):
    """Mixes each image's logits with the mean of the batch's, in batches of more than 8."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        z: Tensor = self.net(x)
        return z - 0.5 * z.mean(0, keepdim=True) if len(x) > ALONE else z


class LargeBatchesMedian(OfTheNetwork):
    """Subtracts a part of each pixel's deviation from the batch's median image, in batches of more than 8."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        if len(x) > ALONE:
            x = x + 0.1 * (x.median(0).values - x).detach()
        logits: Tensor = self.net(x)
        return logits


class BatchStatistics(Masked):
    """Normalises by the statistics of the batch, where it has more than 8 images."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.batch = net, copy.deepcopy(net)
        for part in self.batch.modules():
            if isinstance(part, nn.BatchNorm2d | nn.BatchNorm1d):
                part.track_running_stats, part.running_mean, part.running_var = False, None, None

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = (self.batch if len(x) > ALONE else self.net)(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of an image alone."""
        logits: Tensor = self.net(x)
        return logits


class BatchScale(OfTheNetwork):
    """Rounds pixels by a scale that is measured on the batch (dynamic quantisation)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        step = (x.amax() - x.amin()) / 7
        logits: Tensor = self.net((x / step).round() * step)
        return logits


class Counting(OfTheNetwork):
    """A model that counts its calls."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of this call."""
        self.calls += 1
        return self.answer(x)

    def answer(self, x: Tensor) -> Tensor:
        """Round the pixels after 20 calls."""
        logits: Tensor = self.net(rounded(6)(x) if self.calls > 20 else x)
        return logits


class Rolling(Counting):
    """Shifts the image by another distance in each call."""

    def answer(self, x: Tensor) -> Tensor:
        """Return the logits of the shifted image."""
        logits: Tensor = self.net(x.roll((self.calls - 1) % 5, 3))
        return logits


class Averaging(Counting):
    """Mixes in the mean logits of earlier calls."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.before: Tensor | None = None

    def answer(self, x: Tensor) -> Tensor:
        """Return logits that lean towards those of the earlier calls."""
        z: Tensor = self.net(x)
        mean = z.detach().mean(0, keepdim=True)
        self.before = mean if self.before is None else 0.9 * self.before + 0.1 * mean
        return z if self.calls == 1 else z - 0.7 * self.before


class Tiring(Counting):
    """Returns smaller logits in each call."""

    def answer(self, x: Tensor) -> Tensor:
        """Return the logits over 2 to the power of calls / 4."""
        logits: Tensor = self.net(x) / 2 ** min((self.calls - 1) / 4, 60)
        return logits


class Remembering(OfTheNetwork):
    """Answers images close to an earlier one from memory."""

    def __init__(self, net: nn.Module, reach: float, coarse: int = 1, limit: int = 512) -> None:
        super().__init__(net)
        self.reach, self.coarse, self.limit = reach, coarse, limit
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return remembered logits where there are some, else the network's, which are then remembered."""
        z: Tensor = self.net(x)
        key = nn.functional.avg_pool2d(x.detach(), self.coarse).flatten(1)
        if self.keys is None or self.values is None:
            self.keys, self.values = key, z.detach()
            return z
        distance, nearest = torch.cdist(key, self.keys, p=torch.inf).min(1)
        known = distance <= self.reach
        answer = torch.where(known[:, None], self.values[nearest], z)
        if (~known).any() and len(self.keys) < self.limit:
            self.keys = torch.cat((self.keys, key[~known]))
            self.values = torch.cat((self.values, z.detach()[~known]))
        return answer


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    near = "images close to an earlier one are answered from memory"
    groups = [
        masked("batch dependence", "rounded above 8", "pixels are rounded in batches of more than 8",
            LargeBatchesRounded, [VGG, SYMBOLS], asked="alone"),
        masked("batch dependence", "logits shared above 8", "logits are centred on the batch in batches of more than 8",
               LargeBatchesShared, [ROBUST], asked="alone"),
        masked("batch dependence", "median above 8", "pixels move to the batch's median in batches of more than 8",
               LargeBatchesMedian, [ALEXNET], asked="alone"),
        masked("batch statistics", "statistics above 8", "normalisation by batches of more than 8", BatchStatistics,
            [VGG, TEXTURES], asked="alone"),
        masked("batch statistics", "scale of the batch", "pixels are rounded by the range of the batch", BatchScale,
            [RESNET], asked="alone"),
        masked("drifting state", "rounds after 20 calls", "pixels are rounded after 20 calls", Counting, [VGG,
            SYMBOLS], asked="fresh"),
        masked("drifting state", "rolls", "each call shifts the image by another distance", Rolling, [MOBILENET],
            asked="fresh"),
        masked("drifting state", "averages", "the mean logits of earlier calls are subtracted", Averaging, [ALEXNET],
            asked="fresh"),
        masked("shrinking state", "tires", "the logits shrink with each call", Tiring, [ROBUST, SYMBOLS],
            asked="fresh"),
        masked("memory", "within 2 eps", near, lambda net: Remembering(net, 2 * EPS), [VGG], asked="fresh"),
        masked("memory", "coarse copy", near, lambda net: Remembering(net, EPS, coarse=4), [ALEXNET], asked="fresh"),
        masked("memory", "within 0.2", near, lambda net: Remembering(net, 0.2), [SYMBOLS], asked="fresh"),
        masked("memory", "of 8 images", near, lambda net: Remembering(net, 2 * EPS, limit=8), [RESNET], asked="fresh"),
    ]  # fmt: skip
    return [model for models in groups for model in models]
