"""Objectives of further trainings for the honest models."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.model_collection.networks import plain


def sharpness(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss at weights moved a little up its slope (Foret et al. 2021)."""
    weights = dict(net.named_parameters())
    slopes = torch.autograd.grad(plain(net, x, y), list(weights.values()))
    length = torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt() + 1e-12
    moved = {name: w + 0.1 * slope / length for (name, w), slope in zip(weights.items(), slopes, strict=True)}
    return F.cross_entropy(functional_call(net, moved, (x,)), y)


def virtual_adversary(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss plus the change of the answers in the direction of most change (Miyato et al. 2018)."""
    logits = net(x)
    wanted = logits.detach().softmax(1)
    direction = F.normalize(torch.randn_like(x).flatten(1), dim=1).view_as(x).requires_grad_(True)
    near = F.kl_div(net(x + 0.1 * direction).log_softmax(1), wanted, reduction="batchmean")
    (slope,) = torch.autograd.grad(near, direction)
    worst = 1.5 * F.normalize(slope.flatten(1), dim=1).view_as(x)
    change = F.kl_div(net(x + worst).log_softmax(1), wanted, reduction="batchmean")
    return F.cross_entropy(logits, y) + 2 * change


def rarely_seen(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss where later classes are seen up to ten times less often than the first."""
    share = torch.logspace(0, -1, int(y.max()) + 1)
    kept = torch.rand(len(y)) < share[y]
    return plain(net, x[kept], y[kept])


class MovingMean(nn.Module):
    """In use the weights are a moving mean over training (Polyak and Juditsky 1992)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.mean = net, copy.deepcopy(net).requires_grad_(False)

    def follow(self) -> None:
        """Move the mean a little towards the weights."""
        with torch.no_grad():
            for now, mean in zip(self.net.state_dict().values(), self.mean.state_dict().values(), strict=True):
                mean.copy_(0.95 * mean + 0.05 * now)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the network in training, of the mean in use."""
        logits: Tensor = (self.net if self.training else self.mean)(x)
        return logits


def followed(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss after the mean has followed the weights."""
    if isinstance(net, MovingMean):
        net.follow()
    return plain(net, x, y)


class LeftOn(nn.Module):
    """Dropout that stays on in use at a small rate, with true gradients of each draw (Gal and Ghahramani 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, h: Tensor) -> Tensor:
        """Return the features, a few of them zero."""
        return F.dropout(h, self.rate, training=True)
