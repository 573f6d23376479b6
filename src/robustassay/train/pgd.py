"""Adversarial training with projected gradient descent (Madry et al. 2018, arXiv:1706.06083)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.registry import register
from robustassay.train.recipe import Recipe


@register("recipe", "pgd")
@dataclass(frozen=True, kw_only=True)
class PGDTraining(Recipe):
    """Cross-entropy on adversarial images from `steps` of PGD within `eps` in L∞."""

    title: ClassVar[str] = "PGD adversarial training"

    eps: float = 8 / 255
    step: float = 2 / 255
    steps: int = 10

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of the batch after the attack."""
        with frozen(network):
            x_adv = linf_pgd(network, x, y, self.eps, self.step, self.steps, rng)
        return F.cross_entropy(network(x_adv), y)


def linf_pgd(
    network: nn.Module, x0: Tensor, y: Tensor, eps: float, step: float, steps: int, rng: torch.Generator
) -> Tensor:
    """Maximise the cross-entropy with sign steps from a random point of the L∞ ball around x0."""
    lowest, highest = (x0 - eps).clamp(min=0), (x0 + eps).clamp(max=1)
    x = x0 + torch.empty_like(x0).uniform_(-eps, eps, generator=rng)
    x = x.clamp(lowest, highest)
    for _ in range(steps):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(network(x), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        x = (x + step * gradient.sign()).clamp(lowest, highest)
    return x.detach()


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Put a network into eval mode without gradients of its weights inside the block."""
    training = network.training
    network.eval().requires_grad_(False)
    try:
        yield
    finally:
        network.train(training).requires_grad_(True)
