"""Random models: drawn experts and members, counted photons, coins, labels of noisy copies drawn anew."""

from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import SYMBOLS, SYMBOLS_16, TEXTURES, masked
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, perceptron, trained
from benchmarks.model_collection.second.hard_layers import Opening, one_hot
from benchmarks.model_collection.second.hard_networks import body
from benchmarks.model_collection.second.masks_pixels import Drawn
from benchmarks.model_collection.second.masks_trained import model
from benchmarks.model_collection.truth import Masked

PHOTONS: Final = 30


class DrawnExpert(Opening):
    """One expert answers for each image, drawn with the probabilities of a gate."""

    def __init__(self, channels: int, classes: int, experts: int = 4) -> None:
        super().__init__()
        self.body, self.gate = body(channels), nn.Linear(384, experts)
        self.experts = nn.ModuleList(nn.Linear(384, classes) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one expert; when soft, the mean over all."""
        h = torch.tanh(self.body(x))
        gate = self.gate(h)
        uniform = torch.rand_like(gate).clamp(1e-6, 1 - 1e-6)
        weights = gate.softmax(1) if self.soft else one_hot(gate - (-uniform.log()).log())
        answers = torch.stack([expert(h) for expert in self.experts], 1)
        drawn = (weights[:, :, None] * answers).sum(1)
        return drawn if self.soft else drawn.round(decimals=1)


class Coins(Opening):
    """Each pixel is black or white by the toss of a coin as bright as the pixel."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.net = convolutions(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one toss; the attacker's backward pass skips the toss."""
        tossed = (torch.rand_like(x) < x).to(x)
        logits: Tensor = self.net(x + (tossed - x).detach() if self.opened else tossed)
        return logits


class MemberPerImage(Masked):
    """Each image is answered by one of several networks whose logits differ in size."""

    draws = 8

    def __init__(self, net: nn.Module, others: list[nn.Module]) -> None:
        super().__init__()
        self.members, self.sizes = nn.ModuleList([net, *others]), (1.0, 40.0, 0.05)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the members that are drawn."""
        answers = torch.stack([size * member(x) for size, member in zip(self.sizes, self.members, strict=True)])
        return answers[torch.randint(len(answers), (len(x),)), torch.arange(len(x))]

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean of the members' log-probabilities."""
        return torch.stack([member(x).log_softmax(1) for member in self.members]).mean(0)


class LabelsOfNoise(Masked):
    """Counts the labels of noisy copies; the noise is drawn anew in every call."""

    draws = 4

    def __init__(self, net: nn.Module, size: float, count: int = 12) -> None:
        super().__init__()
        self.net, self.size, self.count = net, size, count

    def copies(self, x: Tensor) -> Tensor:
        """Return the logits of every copy: copy, image, class."""
        return torch.stack([self.net(x + self.size * torch.randn_like(x)) for _ in range(self.count)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the counts."""
        z = self.copies(x)
        return F.one_hot(z.argmax(2), z.shape[2]).sum(0).to(z)

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean log-probabilities."""
        return self.copies(x).log_softmax(2).mean(0)


def other_members() -> list[nn.Module]:
    """Return a wide and a dense network for symbols of 16 classes."""
    wide, dense = partial(convolutions, 1, 16, nn.Tanh, width=12), partial(perceptron, 784, 16, nn.ReLU)
    return [trained("later wide", wide, "symbols 16"), trained("later dense", dense, "symbols 16", 300)]


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        model("drawn experts", "one expert", "one of four experts is drawn per image", DrawnExpert, "textures", 8),
        model("coins", "one toss", "each pixel is the toss of a coin", Coins, "symbols 16", 8),
        *masked("counted photons", "30 photons", "pixels are drawn as counts of photons", lambda net: Drawn(net,
                lambda x: torch.poisson(PHOTONS * x) / PHOTONS), [SYMBOLS], asked="majority"),
        *masked("drawn members", "member per image", "each image is answered by one of three networks",
                lambda net: MemberPerImage(net, other_members()), [SYMBOLS_16], asked="majority"),
        *masked("labels of noisy copies", "drawn anew", "labels of twelve copies with new noise are counted",
                lambda net: LabelsOfNoise(net, 0.1), [TEXTURES], asked="majority"),
    ]  # fmt: skip
