"""Honest models: known networks behind further harmless wrappers."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.model_collection.bases import MOBILENET, ROBUST
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.seventh.honest_wrappers import before, on


class OneVector(nn.Module):
    """All weights of a network as one vector, of which each call cuts its pieces."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        weights = dict(net.named_parameters())
        self.shapes = {name: weight.shape for name, weight in weights.items()}
        self.weights = nn.Parameter(torch.cat([weight.detach().flatten() for weight in weights.values()]))
        self.net = copy.deepcopy(net).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        parts = torch.split(self.weights, [shape.numel() for shape in self.shapes.values()])
        pieces = {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}
        logits: Tensor = functional_call(self.net, pieces, (x,))
        return logits


def wavelets(x: Tensor) -> Tensor:
    """Make small differences between neighbours smaller, in two sizes of the Haar transform; none vanishes."""
    coarse = F.avg_pool2d(x, 2)
    detail = x - F.interpolate(coarse, scale_factor=2.0)
    if x.shape[2] > 16:
        coarse = wavelets(coarse)
    return F.interpolate(coarse, scale_factor=2.0) + detail * (1 - 0.6 * torch.exp(-(detail / 0.04).square()))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [
        on("smaller wavelets", ROBUST, 7, "small wavelet coefficients are made smaller", before(wavelets)),
        on("weights in one vector", MOBILENET, 4, "weights are cut from one vector", OneVector),
    ]
