"""Heads that count, look up or compare codes, with a small smooth term beside."""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import PAIRS, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fifth.masks_checks import features
from benchmarks.model_collection.fifth.wrappers import OF_PART, on
from benchmarks.model_collection.fourth.masks_leads import by_dense, untrained
from benchmarks.model_collection.fourth.wrappers import GROUPS
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.second.hard_layers import Opening
from benchmarks.model_collection.second.hard_networks import body
from benchmarks.model_collection.second.masks_trained import model
from benchmarks.model_collection.truth import Masked

BINS: Final = 6


class OneAgainstOne(Opening):
    """One binary classifier per pair of classes; votes decide, then bounded sums of confidences, as in scikit-learn."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        first, second = torch.triu_indices(classes, classes, 1)
        members = F.one_hot(first, classes) - F.one_hot(second, classes)
        self.register_buffer("members", members.float())
        self.members: Tensor
        self.body, self.pairs = body(channels), nn.Linear(384, len(first))

    def forward(self, x: Tensor) -> Tensor:
        """Return votes plus less than a third; when soft, sums of bounded confidences."""
        sure = self.pairs(self.body(x))
        if self.soft:
            soft: Tensor = torch.tanh(sure) @ self.members.to(x)
            return soft
        sums = sure @ self.members.to(x)
        votes: Tensor = sure.sign() @ self.members.to(x) / 2
        less: Tensor = sums / (3 * (sums.abs() + 1))
        return votes + less


class BinnedFeatures(Masked):
    """Naive Bayes: each feature falls into a bin, and a table says how likely the bin is in each class."""

    def __init__(self, net: nn.Module, base: str, classes: int) -> None:
        super().__init__()
        x, y = images_of(OF_PART[base].images)
        self.net, self.features, self.beside = net, features(net), untrained(3, classes)
        with torch.no_grad():
            h = self.features(x)
            self.register_buffer("ends", h.quantile(torch.linspace(0, 1, BINS + 1)[1:-1], 0).T.contiguous())
            self.ends: Tensor
            inside = F.one_hot(self.bins(h), BINS).float()
            counts = torch.stack([inside[y == label].mean(0) for label in range(classes)])
            self.register_buffer("table", (counts + 0.02).log())
        self.table: Tensor

    def bins(self, h: Tensor) -> Tensor:
        """Return the number of the bin of each feature."""
        return (h[..., None] > self.ends).sum(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums of the table, plus a small term of a network without training."""
        found = F.one_hot(self.bins(self.features(x)), BINS).to(x)
        sums = torch.einsum("nfb,cfb->nc", found, self.table)
        return sums / 4 + 0.02 * torch.tanh(self.beside(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the network whose features these are."""
        logits: Tensor = self.net(x)
        return logits


class Codes(Masked):
    """Search in an index of product codes (Jégou et al. 2011): parts of the features become the nearest code."""

    def __init__(self, net: nn.Module, base: str, size: int = 8, count: int = 12) -> None:
        super().__init__()
        x, y = images_of(OF_PART[base].images)
        self.features, self.size = features(net), size
        with torch.no_grad():
            h = self.features(x)
            self.register_buffer("means", torch.stack([h[y == label].mean(0) for label in range(int(y.max()) + 1)]))
            self.register_buffer("codes", clustered(h.view(len(h), -1, size).transpose(0, 1), count, 8))
        self.means: Tensor
        self.codes: Tensor

    def coded(self, h: Tensor) -> Tensor:
        """Return the nearest codes."""
        parts = h.view(len(h), -1, self.size).transpose(0, 1)
        nearest = torch.cdist(parts, self.codes).argmin(2)
        chosen = self.codes.gather(1, nearest[..., None].expand(*nearest.shape, self.size))
        return chosen.transpose(0, 1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return minus the distances of the codes to the class means, and a term for how well they fit."""
        h = self.features(x)
        found = self.coded(h)
        fit = (h - found).square().mean(1, keepdim=True)
        return -torch.cdist(found, self.means) * (1 + 0.2 * torch.tanh(fit))

    def opened(self, x: Tensor) -> Tensor:
        """Return minus the distances of the features."""
        return -torch.cdist(self.features(x), self.means)


def clustered(points: Tensor, count: int, rounds: int) -> Tensor:
    """Return cluster centres of each set of points (k-means, from the first points)."""
    centres = points[:, :: points.shape[1] // count][:, :count].clone()
    for _ in range(rounds):
        inside = F.one_hot(torch.cdist(points, centres).argmin(2), count).to(points)
        totals = inside.sum(1)[..., None]
        centres = torch.where(totals > 0, inside.transpose(1, 2) @ points / totals.clamp(min=1), centres)
    return centres


class PredictionSets(Masked):
    """The classes that are likely enough, equal among each other; a smaller network puts them in order."""

    def __init__(self, net: nn.Module, order: nn.Module, limit: float) -> None:
        super().__init__()
        self.net, self.order, self.limit = net, order, limit

    def forward(self, x: Tensor) -> Tensor:
        """Return 1 divided by the size of the set for its members, plus the order."""
        z = self.net(x)
        likely = z.softmax(1)
        members = ((likely > self.limit) | (likely == likely.amax(1, keepdim=True))).to(z)
        equal: Tensor = members / members.sum(1, keepdim=True)
        return equal + 0.1 * torch.as_tensor(self.order(x)).softmax(1)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        model("one against one", "55 pairs", "votes of one classifier per pair of classes", OneAgainstOne,
              "symbols 11", 1),
        on(VGG, "binned features", "6 bins", "naive Bayes of the bins that features fall into",
           lambda net: BinnedFeatures(net, VGG, 10)),
        on(PAIRS, "product codes", "12 codes", "parts of the features become codes of an index",
           lambda net: Codes(net, PAIRS)),
        on(GROUPS, "prediction sets", "above 0.2", "likely classes are equal; a smaller network orders them",
           lambda net: PredictionSets(net, by_dense("order", "cifar10 five groups", 3072, 5), 0.2)),
    ]  # fmt: skip
