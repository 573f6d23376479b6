"""Masks after the network: margins that mislead, decoys, scores that saturate, cascades, counts and samples."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    CERTIFIED,
    MOBILENET,
    PAIRS,
    RESNET,
    ROBUST,
    SPOTS,
    SYMBOLS,
    SYMBOLS_11,
    SYMBOLS_16,
    TEXTURES,
    VGG,
    WAVES,
    masked,
)
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import FIVE
from benchmarks.model_collection.masks_output import Reworded
from benchmarks.model_collection.networks import zoo
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]
Scores = Callable[[Tensor, Tensor], Tensor]
"""From the image and the logits to the deployed scores."""


class Scored(Masked):
    """A network whose scores also depend on the image; the attacker differentiates the logits."""

    def __init__(self, net: nn.Module, scores: Scores) -> None:
        super().__init__()
        self.net, self.scores = net, scores

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        return self.scores(x, self.net(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


def with_margin(curve: Change) -> Change:
    """Replace the lead of the winner by a positive function of it: the label stays, the gradient is true."""

    def change(z: Tensor) -> Tensor:
        best = z.topk(2).values
        lead = best[:, :1] - best[:, 1:]
        return z + (curve(lead) - lead) * F.one_hot(z.argmax(1), z.shape[1]).to(z)

    return change


def wavy(frequency: float) -> Change:
    """A lead that rises and falls many times."""
    return lambda lead: lead * (1 + 0.9 * torch.sin(frequency * lead))


def reversed_saw(width: float) -> Change:
    """A lead that jumps up at every multiple of the width and falls in between."""
    return lambda lead: 2 * width * (lead.detach() / width).ceil() - lead


def valley(centre: float) -> Change:
    """A lead with its minimum at a point far from zero: descent ends there."""
    return lambda lead: 1 + (lead - centre).abs()


def signs(x: Tensor) -> Tensor:
    """Return the sum of the pixels times fixed random signs, per image."""
    drawn = torch.rand(x.shape[1:], generator=torch.Generator().manual_seed(7)).to(x)
    return ((x - 0.5) * torch.where(drawn < 0.5, -1.0, 1.0)).flatten(1).sum(1, keepdim=True)


def evasive_temperature(rate: float) -> Scores:
    """Scale the logits by a steep function of the image: the loss grows fastest along the scale."""
    return lambda x, z: (z - z.mean(1, keepdim=True)) * torch.exp((rate * signs(x)).clamp(-40, 40))


def decoy_class(reach: float) -> Scores:
    """Append a class that follows closely behind the winner and never wins."""
    return lambda x, z: torch.cat((z, z.amax(1, keepdim=True) - 0.5 - 0.4 * torch.tanh(signs(x) / reach)), 1)


def cancelling(size: float) -> Scores:
    """Add a steep linear term to each logit and subtract its value."""

    def scores(x: Tensor, z: Tensor) -> Tensor:
        weights = torch.randn(x[0].numel(), z.shape[1], generator=torch.Generator().manual_seed(5)).to(x)
        term = size * x.flatten(1) @ weights
        return z + (term - term.detach())

    return scores


def boosted(z: Tensor) -> Tensor:
    """Add 150 to the winner: the cross-entropy is zero, and so is its slope."""
    return z + 150 * F.one_hot(z.argmax(1), z.shape[1]).to(z)


def exponentiated(z: Tensor) -> Tensor:
    """Return the exponentials of the logits as scores."""
    return (3 * (z - z.mean(1, keepdim=True))).clamp(max=60).exp()


def binned(z: Tensor) -> Tensor:
    """Return calibrated probabilities: a table of ten bins, ties in the order of the logits."""
    table = torch.linspace(0.05, 0.95, 10).to(z)
    place = (z.softmax(1) * 10).long().clamp(0, 9)
    return (table[place] / (1 - table[place])).log() + 1e-3 * z.detach() + 0 * z


def sampled(count: int) -> Change:
    """Return how often each class is drawn from the probabilities."""

    def change(z: Tensor) -> Tensor:
        drawn = torch.multinomial((2 * z.detach()).softmax(1), count, replacement=True)
        return F.one_hot(drawn, z.shape[1]).sum(1).to(z) + 0 * z

    return change


def coarse_then_fine(groups: tuple[int, ...]) -> Change:
    """Choose a group of classes, then score only the classes in it; all others have a constant score."""

    def change(z: Tensor) -> Tensor:
        columns = torch.tensor(groups)
        totals = torch.stack([z[:, columns == group].logsumexp(1) for group in range(max(groups) + 1)], 1)
        inside = columns[None] == totals.argmax(1)[:, None]
        return torch.where(inside, z - totals.amax(1, keepdim=True), torch.full_like(z, -30.0))

    return change


class Fallback(Masked):
    """Answers where an image and its blurred copy agree; else another network's label, without a gradient."""

    def __init__(self, net: nn.Module, other: nn.Module, side: int = 3) -> None:
        super().__init__()
        self.net, self.other, self.side = net, other, side

    def blurred(self, x: Tensor) -> Tensor:
        """Average over a small square."""
        return F.avg_pool2d(F.pad(x, (self.side // 2,) * 4, mode="replicate"), self.side, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, or the other network's label."""
        z: Tensor = self.net(x)
        agree = z.argmax(1) == self.net(self.blurred(x)).argmax(1)
        with torch.no_grad():
            spare = 10 * F.one_hot(self.other(x).argmax(1), z.shape[1]).to(z)
        return torch.where(agree[:, None], z, spare)

    def opened(self, x: Tensor) -> Tensor:
        """Return the sum of all that is asked."""
        total: Tensor = self.net(x) + self.net(self.blurred(x)) + 0.5 * self.other(x)
        return total


class NoiseVotes(Masked):
    """Counts the labels of copies with fixed noise, as smoothing does."""

    def __init__(self, net: nn.Module, shape: tuple[int, int, int], size: float, count: int = 12) -> None:
        super().__init__()
        self.net, self.size = net, size
        self.register_buffer("noise", torch.randn(count, *shape, generator=torch.Generator().manual_seed(3)))
        self.noise: Tensor

    def copies(self, x: Tensor) -> Tensor:
        """Return the logits of every copy: image, copy, class."""
        noisy = (x[:, None] + self.size * self.noise).flatten(0, 1)
        logits: Tensor = self.net(noisy).view(len(x), len(self.noise), -1)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Return the counts."""
        z = self.copies(x)
        return F.one_hot(z.argmax(2), z.shape[2]).sum(1).to(z) + 0 * z[:, 0]

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean logits."""
        return self.copies(x).mean(1)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    fallback = "another network's label where an image and its blurred copy disagree"
    counts = "labels of twelve noisy copies are counted"
    tens = tuple(label // 10 for label in range(100))
    groups = [
        *(masked(family, mask, made, partial(Reworded, change=change), bases, **facts)
            for family, mask, made, change, bases, facts in CHANGES),
        *(masked(family, mask, made, partial(Scored, scores=scores), bases) for family, mask, made, scores,
            bases in SCORES),
        masked("decoy class", "a class behind the winner", "a further class follows the winner closely",
               partial(Scored, scores=decoy_class(40.0)), [VGG], classes=11),
        masked("decoy class", "a class behind the winner", "a further class follows the winner closely",
               partial(Scored, scores=decoy_class(15.0)), [SYMBOLS_16], classes=17),
        masked("coarse then fine", "five groups", "only classes of the chosen group are scored",
               partial(Reworded, change=coarse_then_fine(FIVE)), [ROBUST]),
        masked("coarse then fine", "tens, then units", "only classes of the chosen group are scored",
               partial(Reworded, change=coarse_then_fine(tens)), [PAIRS]),
        masked("fallback of a detector", "robust fallback", fallback, lambda net: Fallback(net, zoo(ROBUST)), [VGG,
            ALEXNET]),
        masked("counts over noise", "twelve draws", counts, lambda net: NoiseVotes(net, (3, 16, 16), 0.1), [TEXTURES]),
    ]  # fmt: skip
    return [model for models in groups for model in models]


CHANGES: Final[list[tuple[str, str, str, Change, list[str], dict[str, str]]]] = [
    ("wavy margins", "waves of the lead", "the winner's lead rises and falls as the true one falls",
        with_margin(wavy(9.0)), [VGG, ROBUST], {}),
    ("reversed margins", "saw of 1", "the winner's lead grows while the true one falls, with jumps",
        with_margin(reversed_saw(1.0)), [RESNET, SYMBOLS, WAVES], {}),
    ("valley of the margin", "minimum at 3", "the winner's lead has a minimum where it is still ahead",
        with_margin(valley(3.0)), [MOBILENET, SPOTS], {}),
    ("boosted winner", "plus 150", "the winner's logit is raised by 150", boosted, [CERTIFIED, PAIRS], {}),
    ("exponentiated scores", "exponentials", "the scores are exponentials of logits", exponentiated, [RESNET,
        SYMBOLS_11], {}),
    ("binned confidences", "ten bins", "probabilities are calibrated by a table of ten bins", binned, [ALEXNET,
        SPOTS], {}),
    ("sampled answers", "64 samples", "classes are drawn from the probabilities and counted", sampled(64), [CERTIFIED,
        WAVES], {"asked": "majority"}),
]  # fmt: skip
SCORES: Final[list[tuple[str, str, str, Scores, list[str]]]] = [
    ("evasive temperature", "steep scale", "the logits' scale depends steeply on the image", evasive_temperature(0.3),
        [VGG, MOBILENET]),
    ("evasive temperature", "steep scale", "the logits' scale depends steeply on the image", evasive_temperature(0.2),
        [SYMBOLS_11]),
    ("cancelling terms", "linear terms", "steep linear terms are added, and their values subtracted", cancelling(30.0),
        [RESNET, TEXTURES]),
]  # fmt: skip
