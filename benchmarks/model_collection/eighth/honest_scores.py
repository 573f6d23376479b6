"""Honest networks whose classes are scored in unusual ways, by densities, transport or gates; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import plain
from benchmarks.model_collection.seventh.honest_networks import one
from benchmarks.model_collection.sixth.honest_parts import filters


class FlowDensities(nn.Module):
    """Log-densities of classes, each a Gaussian behind one shared invertible map (Izmailov et al. 2020)."""

    def __init__(self, values: int, classes: int, layers: int = 4, width: int = 48) -> None:
        super().__init__()
        half = values // 2
        self.maps = nn.ModuleList(
            nn.Sequential(nn.Linear(half, width), nn.Tanh(), nn.Linear(width, 2 * half)) for _ in range(layers)
        )
        self.means = nn.Parameter(torch.randn(classes, values))

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-densities, divided by the number of values and times 20."""
        first, second = (4 * x.flatten(1) - 2).chunk(2, 1)
        volume = torch.zeros_like(x[:, 0, 0, 0])
        for layer in self.maps:
            scale, shift = layer(first).chunk(2, 1)
            scale = torch.tanh(scale)
            first, second = second * scale.exp() + shift, first
            volume = volume + scale.sum(1)
        h = torch.cat((first, second), 1)
        density = volume[:, None] - (h[:, None] - self.means).square().sum(2) / 2
        return 20 * density / h.shape[1]


def densities(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of the classes and a small price of unlikely images."""
    z = torch.as_tensor(net(x))
    return F.cross_entropy(z, y) - 0.02 * z[torch.arange(len(y)), y].mean()


class Transport(nn.Module):
    """Minus the soft costs of moving the patches of an image to learned patches of each class (Cuturi 2013)."""

    def __init__(self, channels: int, classes: int, examples: int = 6, width: int = 16) -> None:
        super().__init__()
        self.see = nn.Sequential(filters(channels, width), filters(width, width, 2), nn.AvgPool2d(2))
        self.mix = nn.Conv2d(width, width, 1)
        self.examples = nn.Parameter(torch.randn(classes, examples, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the negative costs after eight steps of scaling."""
        patches = F.normalize(self.mix(self.see(x)).flatten(2).transpose(1, 2), dim=2)
        costs = 2 - 2 * torch.einsum("bpw,cew->bcpe", patches, F.normalize(self.examples, dim=2))
        kernel = -costs / 0.2
        rows, columns = torch.zeros_like(kernel[..., :1]), torch.zeros_like(kernel[..., :1, :])
        for _ in range(8):
            rows = -(kernel + columns).logsumexp(3, keepdim=True)
            columns = -(kernel + rows).logsumexp(2, keepdim=True)
        plan = (kernel + rows + columns).exp()
        return -12 * (plan * costs).sum((2, 3)) / costs.shape[3]


class Gates(nn.Module):
    """Blends of the sixteen logic gates of two drawn inputs each, over probabilities (Petersen et al. 2022)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.register_buffer("pairs", torch.stack((torch.randint(before, (after,)), torch.randint(before, (after,)))))
        self.choice = nn.Parameter(torch.randn(after, 16))
        tables = torch.tensor([[float(gate >> case & 1) for case in range(4)] for gate in range(16)])
        self.register_buffer("tables", tables)
        self.pairs: Tensor
        self.tables: Tensor

    def forward(self, h: Tensor) -> Tensor:
        """Return the probabilities that the gates give 1."""
        a, b = h[:, self.pairs[0]], h[:, self.pairs[1]]
        neither, second, first, both = (self.choice.softmax(1) @ self.tables).unbind(1)
        return (1 - a) * ((1 - b) * neither + b * second) + a * ((1 - b) * first + b * both)


class LogicGates(nn.Module):
    """Two layers of soft gates over pixels and a weighed count of ones."""

    def __init__(self, values: int, classes: int, gates: int = 1200) -> None:
        super().__init__()
        self.gates = nn.Sequential(Gates(values, gates), Gates(gates, gates))
        self.last = nn.Linear(gates, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the counts."""
        logits: Tensor = self.last(self.gates((6 * (x.flatten(1) - 0.4)).sigmoid()) - 0.5)
        return logits


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in DESIGNS]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("densities by flows", "bars", 9, lambda: FlowDensities(36, 3), densities, 0, 400),
    ("transport to patches", "textures", 18, lambda: Transport(3, 4)),
    ("soft logic gates", "symbols 10", 10, lambda: LogicGates(784, 10), plain, 0, 300),
]
