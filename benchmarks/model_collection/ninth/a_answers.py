"""Honest networks whose logits are energies, products, sticks, tails or subspaces; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, plain
from benchmarks.model_collection.ninth.a_parts import one
from benchmarks.model_collection.seventh.honest_networks import features


class FreeEnergies(nn.Module):
    """Minus the free energies of a Boltzmann machine for an image and each class (Larochelle and Bengio 2008)."""

    def __init__(self, values: int, classes: int, hidden: int = 160) -> None:
        super().__init__()
        self.see, self.name = nn.Linear(values, hidden), nn.Parameter(0.3 * torch.randn(hidden, classes))
        self.shift = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the negative energies."""
        energies: Tensor = F.softplus(self.see(x.flatten(1) - 0.3)[:, :, None] + self.name).sum(1)
        return energies + self.shift


class SumsAndProducts(nn.Module):
    """Likelihoods by alternating products of regions and sums of components (Poon and Domingos 2011)."""

    def __init__(self, values: int, classes: int, groups: tuple[int, ...], parts: int = 10) -> None:
        super().__init__()
        self.middle = nn.Parameter(torch.rand(values, parts))
        self.width = nn.Parameter(torch.full((values, parts), -1.5))
        self.groups, left = groups, values
        mixes = []
        for number, group in enumerate(groups):
            left //= group
            mixes.append(nn.Parameter(torch.randn(left, parts, classes if number == len(groups) - 1 else parts)))
        self.mixes = nn.ParameterList(mixes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-likelihoods, a tenth of them."""
        h = -((x.flatten(1)[:, :, None] - self.middle) / self.width.exp()).square() / 2 - self.width
        for group, mix in zip(self.groups, self.mixes, strict=True):
            h = h.view(len(h), -1, group, h.shape[2]).sum(2)
            h = (h[..., None] + mix.log_softmax(1)).logsumexp(2)
        return h[:, 0] / 2


class Sticks(nn.Module):
    """Every class takes a share of what the classes before it left (Linderman et al. 2015)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-probabilities."""
        z = self.body(x)
        taken, left = F.pad(F.logsigmoid(z), (0, 1)), F.pad(F.logsigmoid(-z), (1, 0))
        return taken + left.cumsum(1)


class Subspaces(nn.Module):
    """The share of the features that lies in a learned subspace of each class (Watanabe et al. 1967)."""

    def __init__(self, body: nn.Module, values: int, classes: int, axes: int = 3) -> None:
        super().__init__()
        self.body, self.axes = body, nn.Parameter(torch.randn(classes, values, axes))

    def forward(self, x: Tensor) -> Tensor:
        """Return ten times the shares."""
        h, axes = self.body(x), torch.linalg.qr(self.axes).Q
        inside = torch.einsum("bv,cva->bca", h, axes).square().sum(2)
        shares: Tensor = 10 * inside / (h.square().sum(1, keepdim=True) + 1e-2)
        return shares


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in ANSWERS]


ANSWERS: Final[list[tuple[Any, ...]]] = [
    ("free energies", "symbols 16", 10, lambda: FreeEnergies(784, 16), plain, 10),
    ("sums and products", "bars", 20, lambda: SumsAndProducts(36, 3, (6, 3, 2))),
    ("sticks broken in turn", "hands", 6, lambda: Sticks(convolutions(1, 39, nn.LeakyReLU)), plain, 6, 250),
    ("subspaces of classes", "symbols 11", 26, lambda: Subspaces(features(1, 36), 36, 11), plain, 10),
]
