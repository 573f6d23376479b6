"""Layers and objectives of unusual training for the honest models."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import plain, zoo


class Kernels(nn.Module):
    """Ridge regression on likeness to training images, solved at once (a radial kernel)."""

    def __init__(self, images: str, classes: int, count: int = 800) -> None:
        super().__init__()
        x, y = images_of(images)
        self.stored = x[:count].flatten(1)
        self.width = 0.5 * float(torch.cdist(self.stored[:200], self.stored[:200]).square().mean())
        wanted = F.one_hot(y[:count], classes).float() - 1 / classes
        self.weights = torch.linalg.solve(self.likeness(self.stored) + 0.1 * torch.eye(count), wanted)

    def likeness(self, flat: Tensor) -> Tensor:
        """Return the kernel's values."""
        stored = self.stored.to(flat)
        distance = flat.square().sum(1, keepdim=True) - 2 * flat @ stored.T + stored.square().sum(1)
        return torch.exp(-distance / self.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ten times the regression's values."""
        values: Tensor = self.likeness(x.flatten(1)) @ self.weights.to(x)
        return 10 * values


class Ternary(nn.Linear):
    """A dense layer of weights -1, 0 and 1 with one scale (Li et al. 2016)."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the product; in training the rounding passes its slope on."""
        size = self.weight.detach().abs().mean()
        kept = self.weight.detach().sign() * (self.weight.detach().abs() > 0.7 * size) * size
        return F.linear(h, kept + self.weight - self.weight.detach(), self.bias)


class OneScore(nn.Module):
    """A single score for two classes; the logit of the first class is always 0."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return 0 and the score."""
        score: Tensor = self.net(x)
        return torch.cat((torch.zeros_like(score), score), 1)


def evidence(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the mean and a small price of the spread."""
    p: Tensor = net(x).exp()
    return (F.one_hot(y, p.shape[1]) - p).square().sum(1).mean() + 0.3 * F.nll_loss(p.log(), y)


def distilled(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the distance to a teacher's probabilities at temperature 4 (Hinton et al. 2015)."""
    with torch.no_grad():
        wanted = (zoo("resnet20-pgd")(x) / 2).softmax(1)
    return F.cross_entropy(net(x) / 2, wanted)


def short_changes(net: nn.Module, x: Tensor, y: Tensor, length: float) -> Tensor:
    """Return the loss after two steps of bounded Euclidean length."""
    delta = torch.zeros_like(x)
    for _ in range(2):
        delta.requires_grad_(True)
        (slope,) = torch.autograd.grad(F.cross_entropy(net(x + delta), y), delta)
        delta = delta.detach() + 0.5 * length * F.normalize(slope.flatten(1), dim=1).view_as(x)
    return plain(net, (x + delta).clamp(0, 1), y)
