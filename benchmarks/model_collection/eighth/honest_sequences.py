"""Honest networks that read an image step by step; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import plain
from benchmarks.model_collection.seventh.honest_blocks import read_out
from benchmarks.model_collection.seventh.honest_networks import one


class FourSweeps(nn.Module):
    """Gated means run over the patches in four directions; the gates see the input only (Feng et al. 2024)."""

    def __init__(self, channels: int, patch: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.gates = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(4))
        self.last = nn.Sequential(nn.GroupNorm(4, 4 * width), nn.GELU(), read_out(classes, 4 * width))

    def sweep(self, h: Tensor, number: int) -> Tensor:
        """Return the running means over the third axis; `h` ends in channels."""
        gate, value = self.gates[number](h).chunk(2, -1)
        gate = gate.sigmoid()
        state, states = torch.zeros_like(value[:, :, 0]), []
        for kept, entered in zip(gate.unbind(2), value.unbind(2), strict=True):
            state = (1 - kept) * state + kept * entered
            states.append(state)
        return torch.stack(states, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the four sweeps."""
        across = self.embed(x - 0.5).permute(0, 2, 3, 1)
        down = across.transpose(1, 2)
        sweeps = [self.sweep(across, 0), self.sweep(across.flip(2), 1).flip(2)]
        sweeps += [self.sweep(down, 2).transpose(1, 2), self.sweep(down.flip(2), 3).flip(2).transpose(1, 2)]
        logits: Tensor = self.last(torch.cat(sweeps, -1).permute(0, 3, 1, 2))
        return logits


class Reservoir(nn.Module):
    """A fixed random recurrent layer reads the columns; only the answer is trained (Jaeger 2001)."""

    def __init__(self, values: int, classes: int, width: int = 160) -> None:
        super().__init__()
        again = torch.randn(width, width) * (torch.rand(width, width) < 0.1)
        self.register_buffer("again", 0.9 * again / torch.linalg.eigvals(again).abs().max())
        self.register_buffer("enter", torch.randn(values, width) / values**0.5)
        self.last = nn.Linear(2 * width, classes)
        self.again: Tensor
        self.enter: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the last state and of the mean size of all states."""
        columns = 3 * (x.flatten(1, 2) - 0.5).transpose(1, 2) @ self.enter
        h, total = torch.zeros_like(columns[:, 0]), torch.zeros_like(columns[:, 0])
        for column in columns.unbind(1):
            h = 0.4 * h + 0.6 * torch.tanh(column + h @ self.again)
            total = total + h.square()
        logits: Tensor = self.last(torch.cat((h, 4 * total / columns.shape[1]), 1))
        return logits


class FastWeights(nn.Module):
    """Each row writes to a matrix by the rule of least change; the last rows read it (Schlag et al. 2021)."""

    def __init__(self, values: int, rows: int, classes: int, width: int = 24) -> None:
        super().__init__()
        self.width, self.place = width, nn.Parameter(0.1 * torch.randn(1, rows, values))
        self.mix, self.rate = nn.Linear(values, 3 * width), nn.Linear(values, 1)
        self.last = nn.Sequential(nn.LayerNorm(width * rows), nn.Linear(width * rows, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of what was read after each row."""
        rows = x.transpose(1, 2).flatten(2) - 0.3 + self.place
        query, key, value = self.mix(rows).chunk(3, -1)
        query, key, rate = F.softmax(query, -1), F.softmax(key, -1), self.rate(rows).sigmoid()
        memory, read = x.new_zeros(len(x), self.width, self.width), []
        for q, k, v, r in zip(query.unbind(1), key.unbind(1), value.unbind(1), rate.unbind(1), strict=True):
            change = r * (v - torch.einsum("bvk,bk->bv", memory, k))
            memory = memory + change[:, :, None] * k[:, None]
            read.append(torch.einsum("bvk,bk->bv", memory, q))
        logits: Tensor = self.last(torch.cat(read, 1))
        return logits


class Glimpses(nn.Module):
    """A recurrent state moves a grid of Gaussian windows over the image, four times (Gregor et al. 2015)."""

    def __init__(self, channels: int, side: int, classes: int, grid: int = 7, width: int = 64) -> None:
        super().__init__()
        self.side, self.grid, self.width = side, grid, width
        self.see = nn.Linear(channels * grid**2, width)
        self.again, self.move, self.last = nn.GRUCell(width, width), nn.Linear(width, 4), nn.Linear(width, classes)

    def windows(self, middle: Tensor, step: Tensor, spread: Tensor) -> Tensor:
        """Return one row of weights over the pixels per point of the grid."""
        points = middle + step * (torch.arange(self.grid).to(middle) - (self.grid - 1) / 2)
        pixels = torch.arange(self.side).to(middle)
        return F.softmax(-((pixels - points[:, :, None]) ** 2) / (2 * spread[:, :, None] ** 2), 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after the last glimpse."""
        h = x.new_zeros(len(x), self.width)
        for _ in range(4):
            down, across, step, spread = self.move(h).chunk(4, 1)
            middle, step, spread = self.side / 2, self.side / self.grid * torch.exp(0.3 * step.tanh()), spread.exp()
            rows = self.windows(middle + 4 * down.tanh(), step, 0.7 + spread)
            columns = self.windows(middle + 4 * across.tanh(), step, 0.7 + spread)
            seen = rows[:, None] @ x @ columns[:, None].transpose(2, 3)
            h = self.again(F.relu(self.see(seen.flatten(1) - 0.3)), h)
        logits: Tensor = self.last(h)
        return logits


class HiddenChains(nn.Module):
    """One hidden Markov chain per class; the logits are the log-likelihoods of the rows (Rabiner 1989)."""

    def __init__(self, values: int, classes: int, states: int = 8, width: int = 10) -> None:
        super().__init__()
        self.seen = nn.Sequential(nn.Linear(values, 32), nn.Tanh(), nn.Linear(32, width))
        self.start = nn.Parameter(torch.randn(classes, states))
        self.moves = nn.Parameter(torch.randn(classes, states, states) + 2 * torch.eye(states))
        self.middle = nn.Parameter(torch.randn(classes, states, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-likelihoods by the forward algorithm."""
        rows = self.seen(x.transpose(1, 2).flatten(2) - 0.3)
        fits = -(rows[:, :, None, None] - self.middle).square().mean(4)
        moves = self.moves.log_softmax(2)
        h = self.start.log_softmax(1) + fits[:, 0]
        for fit in fits[:, 1:].unbind(1):
            h = (h[..., None] + moves).logsumexp(2) + fit
        likelihoods: Tensor = h.logsumexp(2)
        return likelihoods


class Alignments(nn.Module):
    """Costs of the best soft alignments with learned examples of each class (Cuturi and Blondel 2017)."""

    def __init__(self, values: int, classes: int, pace: int = 4, length: int = 8, examples: int = 4) -> None:
        super().__init__()
        self.see = nn.Sequential(nn.Conv1d(values, 12, 5, pace, 2), nn.ReLU())
        self.examples = nn.Parameter(torch.rand(classes, examples, length, 12))

    def forward(self, x: Tensor) -> Tensor:
        """Return minus the soft minimum of the costs of each class."""
        parts = self.see(x.flatten(1, 2) - 0.5).transpose(1, 2)
        costs = (parts[:, None, None, :, None] - self.examples[:, :, None]).square().mean(5)
        far = torch.full_like(costs[..., 0, 0], 1e4)
        before = [torch.zeros_like(far), *[far] * costs.shape[4]]
        for part in costs.unbind(3):
            row = [far]
            for place, cost in enumerate(part.unbind(3)):
                ways = torch.stack((before[place], before[place + 1], row[place]))
                row.append(cost - 0.1 * torch.logsumexp(-10 * ways, 0))
            before = row
        return torch.logsumexp(-4 * before[-1], 2)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("sweeps in four directions", "cifar10 five groups", 8, lambda: FourSweeps(3, 4, 5), plain, 4),
    ("reservoirs", "waves", 7, lambda: Reservoir(12, 2)),
    ("fast weights", "symbols 16", 8, lambda: FastWeights(28, 28, 16), plain, 0, 300),
    ("glimpses", "symbols 10", 10, lambda: Glimpses(1, 28, 10), plain, 0, 400),
    ("hidden Markov chains", "symbols 11", 7, lambda: HiddenChains(28, 11), plain, 0, 800),
    ("soft alignments", "waves", 10, lambda: Alignments(12, 2)),
]
