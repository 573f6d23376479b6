"""Services around networks: lists of candidates, experts with a capacity, ties, routes to weak experts."""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import CERTIFIED, MOBILENET, PAIRS, ROBUST, SPOTS, SYMBOLS, TEXTURES
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import zoo
from benchmarks.model_collection.sixth.wrappers import SIXTH, dense, gaps, on, other, patterns
from benchmarks.model_collection.truth import Masked

CLOSED: Final = 0.55
"""How far along one of its patterns an image must be before a weak expert is asked; usual images are near 0."""


class Candidates(Masked):
    """A cheap network lists a few classes, without a graph; a robust one chooses among them."""

    def __init__(self, net: nn.Module, cheap: nn.Module, count: int) -> None:
        super().__init__()
        self.net, self.cheap, self.count = net, cheap, count

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the listed classes; the others are below them."""
        z: Tensor = self.net(x)
        with torch.no_grad():
            listed = torch.zeros_like(z).scatter(1, self.cheap(x).topk(self.count, 1).indices, 1.0)
        return torch.where(listed > 0, z, z.detach().amin(1, keepdim=True) - 4)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the cheap network, and a little of the other."""
        total: Tensor = self.cheap(x) + 0.1 * self.net(x)
        return total


class Capacity(Masked):
    """Experts take a few images of each call, the rest goes to a robust network."""

    def __init__(self, experts: list[nn.Module], spare: nn.Module, capacity: int) -> None:
        super().__init__()
        self.experts, self.spare, self.capacity = nn.ModuleList(experts), spare, capacity

    def answers(self, x: Tensor) -> Tensor:
        """Return the log-probabilities of every expert."""
        return torch.stack([expert(x).log_softmax(1) for expert in self.experts])

    def opened(self, x: Tensor) -> Tensor:
        """Return their mean."""
        return self.answers(x).mean(0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the answer of the expert or of the robust network."""
        chosen = (x.mean((1, 2, 3)) * 64).long() % len(self.experts)
        place = F.one_hot(chosen, len(self.experts)).cumsum(0).gather(1, chosen[:, None]).squeeze(1)
        spare = torch.as_tensor(self.spare(x)).log_softmax(1)
        answer = self.answers(x).gather(0, chosen.view(1, -1, 1).expand(1, -1, spare.shape[1]))[0]
        return torch.where((place <= self.capacity)[:, None], answer, spare)


class Ties(Masked):
    """The upper half of a visible network's classes ties with the hidden winner; a tiny term decides."""

    def __init__(self, visible: nn.Module, hidden: nn.Module, size: float) -> None:
        super().__init__()
        self.visible, self.hidden, self.size = visible, hidden, size

    def forward(self, x: Tensor) -> Tensor:
        """Return clipped logits of the visible network and the tiny term."""
        z = torch.as_tensor(self.visible(x)).clamp(-20, 20)
        hidden = self.opened(x)
        top = z.topk(z.shape[1] // 2, 1).values[:, -1:]
        winner = F.one_hot(hidden.argmax(1), z.shape[1]) > 0
        tied = torch.where(winner, top, torch.minimum(z, top))
        return tied + self.size * torch.tanh(1e4 * gaps(hidden))

    def opened(self, x: Tensor) -> Tensor:
        """Return the hidden logits."""
        kind = next(self.hidden.parameters()).dtype
        logits: Tensor = self.hidden(x.to(kind)).to(x)
        return logits


class Routes(Masked):
    """Smooth weights of many experts; a few experts, each with its own pattern, answer wrongly and have no weight."""

    def __init__(self, net: nn.Module, base: str, weak: int, sharpness: float) -> None:
        super().__init__()
        found = SIXTH[base]
        self.net, self.weak, self.sharpness = net.double(), weak, sharpness
        scale = found.eps * found.shape[0] * found.shape[1] * found.shape[2]
        self.register_buffer("patterns", patterns(found.shape, weak + 6, 400).double() / scale)
        self.patterns: Tensor

    def places(self, x: Tensor) -> Tensor:
        """Return the scores of all routes; those of weak experts start lower."""
        lower = torch.arange(len(self.patterns)) < self.weak
        return x.double().flatten(1) @ self.patterns.T - CLOSED * lower.double()

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighed answers."""
        shares = (self.sharpness * self.places(x)).softmax(1)
        z = torch.as_tensor(self.net(x.double()))
        wrong = torch.stack([20 * gaps(z).roll(1 + number, 1) for number in range(self.weak)], 1)
        return shares[:, self.weak :].sum(1, keepdim=True) * z + torch.einsum(
            "nk,nkc->nc", shares[:, : self.weak], wrong
        )

    def opened(self, x: Tensor) -> Tensor:
        """Return the same with a soft choice of routes."""
        shares = (4 * self.places(x)).softmax(1)
        z = torch.as_tensor(self.net(x.double())).detach()
        wrong = torch.stack([gaps(z).roll(1 + number, 1) for number in range(self.weak)], 1)
        return shares[:, self.weak :].sum(1, keepdim=True) * z + torch.einsum(
            "nk,nkc->nc", shares[:, : self.weak], wrong
        )


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    robust_textures = SIXTH[f"robust {TEXTURES}"].load
    return [
        on(ROBUST, "lists of candidates", "three of ten", "a network without a graph lists the classes to choose from",
           lambda net: Candidates(net, zoo(MOBILENET), 3)),
        on(f"robust {SPOTS}", "lists of candidates", "two of twenty",
           "a network without a graph lists the classes to choose from", lambda net: Candidates(net, dense(SPOTS), 2)),
        on(TEXTURES, "capacity of experts", "two of each call", "experts take a few images of each call",
           lambda net: Capacity([net, other(TEXTURES)], robust_textures(), 2), asked="alone"),
        on(CERTIFIED, "ties", "of five classes", "classes tie, and a tiny hidden term decides",
           lambda net: Ties(net, zoo(MOBILENET), 1e-4)),
        on(SYMBOLS, "ties", "hidden in bfloat16", "classes tie, and a tiny hidden term decides",
           lambda net: Ties(dense(SYMBOLS), net.bfloat16(), 1e-3)),
        on(f"robust {PAIRS}", "routes to weak experts", "three in float64", "a few experts have no weight at first",
           lambda net: Routes(net, PAIRS, 3, 90.0)),
    ]  # fmt: skip
