"""Masks after the network: neighbours, votes, ranks, shadows of classes, early answers."""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import BASES, SPOTS, SYMBOLS, SYMBOLS_11, SYMBOLS_16, TEXTURES, WAVES, masked
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.masks_input import rounded
from benchmarks.model_collection.networks import perceptron, trained
from benchmarks.model_collection.truth import Masked


class Neighbours(Masked):
    """Counts the labels of the stored images whose features are nearest, nearer ones a little more."""

    def __init__(self, net: nn.Module, base: str, count: int = 7) -> None:
        super().__init__()
        x, y = images_of(BASES[base].images)
        self.features, self.classes, self.count = nn.Sequential(*list(net.children())[:-1]), BASES[base].classes, count
        with torch.no_grad():
            self.register_buffer("stored", self.features(x[-400:]))
        self.stored: Tensor
        self.stored_labels = y[-400:]

    def distances(self, x: Tensor) -> Tensor:
        """Return the distance to every stored image."""
        return torch.cdist(self.features(x), self.stored)

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted counts."""
        nearest = self.distances(x).topk(self.count, largest=False).indices
        weights = 1 - 0.02 * torch.arange(self.count).to(x)
        return (F.one_hot(self.stored_labels[nearest], self.classes).to(x) * weights[:, None]).sum(1)

    def opened(self, x: Tensor) -> Tensor:
        """Return soft minima of the distances to each class."""
        near = -self.distances(x)
        return torch.stack([near[:, self.stored_labels == label].logsumexp(1) for label in range(self.classes)], 1)


class ModeOfCopies(Masked):
    """The most frequent label of copies that are rounded to different numbers of levels."""

    levels: Final = (7, 10, 14, 18, 26)

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return 1 for the most frequent label."""
        answers = [self.net(rounded(count)(x)) for count in self.levels]
        label = torch.stack([z.argmax(1) for z in answers], 1).mode(1).values
        return F.one_hot(label, answers[0].shape[1]).to(x)

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean logits, with rounding skipped in the backward pass."""
        copies = [x + (rounded(count)(x) - x).detach() for count in self.levels]
        return torch.stack([self.net(copy) for copy in copies]).mean(0)


class Subspaces(Masked):
    """Copies that each see their own part of the pixels; the copies that name a class are counted."""

    def __init__(self, net: nn.Module, shape: tuple[int, int, int], share: float, count: int = 9) -> None:
        super().__init__()
        drawn = torch.rand(count, 1, *shape[1:], generator=torch.Generator().manual_seed(11))
        self.net = net
        self.register_buffer("seen", (drawn < share).float())
        self.seen: Tensor

    def copies(self, x: Tensor) -> list[Tensor]:
        """Return the logits of every copy; unseen pixels have the mean of those around them."""
        blurred = F.avg_pool2d(F.pad(x, (1,) * 4, mode="replicate"), 3, 1)
        return [self.net(part * x + (1 - part) * blurred) for part in self.seen]

    def forward(self, x: Tensor) -> Tensor:
        """Return the share of the copies that name each class."""
        logits = self.copies(x)
        label = torch.stack([z.max(1).indices for z in logits], 1)
        return torch.stack([(label == named).float().mean(1) for named in range(logits[0].shape[1])], 1)

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean logits."""
        return torch.stack(self.copies(x)).mean(0)


class Borda(Masked):
    """Moved copies rank the classes; the ranks are added."""

    moves: Final = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def copies(self, x: Tensor) -> Tensor:
        """Return the logits of every copy: image, copy, class."""
        return torch.stack([self.net(x.roll(move, (2, 3))) for move in self.moves], 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums of the ranks, those near the top counted more."""
        ranks = self.copies(x).argsort(2).argsort(2)
        return (ranks.to(x) / 4).square().sum(1)

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean logits."""
        return self.copies(x).mean(1)


class Shadows(Masked):
    """Every class has a shadow that follows it closely and never wins."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits and those of the shadows."""
        z: Tensor = self.net(x)
        return torch.cat((z, z - 0.3), 1)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


class EarlyAnswer(Masked):
    """A cheap network answers where it is sure, without a gradient; else the other one does."""

    def __init__(self, net: nn.Module, cheap: nn.Module) -> None:
        super().__init__()
        self.net, self.cheap = net, cheap

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the cheap network or of the other."""
        with torch.no_grad():
            early = self.cheap(x)
        sure = early.softmax(1).amax(1, keepdim=True) > 0.8
        return torch.where(sure, early, self.net(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean of the log-probabilities."""
        return torch.stack([part(x).log_softmax(1) for part in (self.cheap, self.net)]).sum(0)


def cheap_network() -> nn.Module:
    """Return two dense layers for symbols of 16 classes."""
    return trained("later cheap", lambda: perceptron(784, 16), "symbols 16")


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    groups = [
        masked("counted neighbours", "seven neighbours", "labels of the nearest stored features are counted",
               lambda net: Neighbours(net, SYMBOLS), [SYMBOLS]),
        masked("most frequent label", "mode of copies", "the most frequent label of five rounded copies", ModeOfCopies,
               [TEXTURES]),
        masked("subspaces", "nine subspaces", "copies that see parts of the pixels are counted",
               lambda net: Subspaces(net, (5, 16, 16), 0.6), [SPOTS]),
        masked("added ranks", "Borda", "ranks of the classes in moved copies are added", Borda, [SYMBOLS_11]),
        masked("shadows of classes", "shadows", "every class has a second one behind it", Shadows, [SYMBOLS_11],
               classes=22),
        masked("shadows of classes", "shadows", "every class has a second one behind it", Shadows, [WAVES], classes=4),
        masked("early answers", "sure above 0.8", "a cheap network without a gradient answers where it is sure",
               lambda net: EarlyAnswer(net, cheap_network()), [SYMBOLS_16]),
    ]  # fmt: skip
    return [model for models in groups for model in models]
