"""Honest networks that follow a system over time: oscillators, neurons, qubits, diffusion; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import plain
from benchmarks.model_collection.ninth.a_parts import one
from benchmarks.model_collection.seventh.honest_blocks import read_out


class Oscillators(nn.Module):
    """Phases that pull at those nearby, and whose start and pace are given by the image (Miyato et al. 2025)."""

    def __init__(self, channels: int, classes: int, width: int = 12) -> None:
        super().__init__()
        self.start = nn.Conv2d(channels, 2 * width, 3, 2, 1)
        self.pull = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.last = read_out(classes, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the phases after six steps."""
        phase, pace = (3 * self.start(x - 0.5)).chunk(2, 1)
        for _ in range(6):
            sine, cosine = phase.sin(), phase.cos()
            phase = phase + 0.3 * (pace + cosine * self.pull(sine) - sine * self.pull(cosine))
        logits: Tensor = self.last(torch.cat((phase.sin(), phase.cos()), 1))
        return logits


class Populations(nn.Module):
    """Excited and inhibiting populations of neurons with positive weights (Wilson and Cowan 1972)."""

    def __init__(self, channels: int, classes: int, width: int = 12) -> None:
        super().__init__()
        self.see = nn.Conv2d(channels, width, 5, 2, 2)
        self.raw = nn.Parameter(torch.randn(4, width, width, 3, 3) - 4)
        self.last = read_out(classes, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the excited neurons after six steps."""
        seen = 3 * self.see(x - 0.2)
        excite, spread, calm, hold = F.softplus(self.raw)
        e = i = torch.zeros_like(seen)
        for _ in range(6):
            drive = seen + F.conv2d(e, excite, padding=1) - F.conv2d(i, calm, padding=1)
            brake = F.conv2d(e, spread, padding=1) - F.conv2d(i, hold, padding=1) - 0.5
            e, i = 0.6 * e + 0.4 * drive.sigmoid(), 0.6 * i + 0.4 * brake.sigmoid()
        logits: Tensor = self.last(4 * e - 2)
        return logits


class Qubits(nn.Module):
    """A simulated circuit: the image turns six qubits four times, with fixed signs between (Perez-Salinas 2020)."""

    def __init__(self, values: int, classes: int, qubits: int = 6, rounds: int = 4) -> None:
        super().__init__()
        self.qubits, self.rounds = qubits, rounds
        self.turns, self.last = nn.Linear(values, qubits * rounds), nn.Linear(2**qubits, classes)
        bits = torch.arange(2**qubits)[:, None] >> torch.arange(qubits) & 1
        self.register_buffer("signs", (-1.0) ** (bits * bits.roll(1, 1)).sum(1))
        self.signs: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the probabilities of all outcomes."""
        angles = self.turns(x.flatten(1) - 0.5).view(len(x), self.rounds, self.qubits)
        state = F.one_hot(torch.zeros(len(x), dtype=torch.long), 2**self.qubits).to(x)
        for angle in angles.unbind(1):
            for number, turn in enumerate(angle.unbind(1)):
                zero, one_ = state.view(len(x), -1, 2, 2**number).unbind(2)
                sine, cosine = turn.sin()[:, None, None], turn.cos()[:, None, None]
                state = torch.stack((cosine * zero - sine * one_, sine * zero + cosine * one_), 2).flatten(1)
            state = state * self.signs
        logits: Tensor = self.last(10 * state.square())
        return logits


class Reactions(nn.Module):
    """Substances that spread at learned paces and react with each other at each place (Turing 1952)."""

    def __init__(self, channels: int, classes: int, width: int = 12) -> None:
        super().__init__()
        self.start, self.react = nn.Conv2d(channels, width, 3, 2, 1), nn.Conv2d(width, 2 * width, 1)
        self.back, self.pace = nn.Conv2d(2 * width, width, 1), nn.Parameter(torch.randn(1, width, 1, 1))
        self.last = read_out(classes, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after eight steps."""
        h = self.start(x - 0.5)
        for _ in range(8):
            around = F.avg_pool2d(F.pad(h, (1, 1, 1, 1), mode="replicate"), 3, 1)
            h = h + self.pace.sigmoid() * (around - h) + 0.4 * self.back(torch.tanh(self.react(h)))
        logits: Tensor = self.last(h)
        return logits


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("coupled oscillators", "textures", 22, lambda: Oscillators(3, 4), plain, 12),
    ("populations of neurons", "lamps", 8, lambda: Populations(1, 7), plain, 8),
    ("simulated qubits", "waves", 16, lambda: Qubits(576, 2)),
    ("reactions and diffusion", "soils", 15, lambda: Reactions(4, 6), plain, 8),
]
