"""TRADES: the trade-off between clean accuracy and robustness (Zhang et al. 2019, arXiv:1901.08573)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.registry import register
from robustassay.train.pgd import frozen
from robustassay.train.recipe import Recipe

START = 1e-3  # Deviation of the start noise: at the clean image the gradient of the divergence is zero.


@register("recipe", "trades")
@dataclass(frozen=True, kw_only=True)
class TRADES(Recipe):
    """Cross-entropy on clean images plus `beta` times the divergence to adversarial images within `eps`."""

    title: ClassVar[str] = "TRADES"

    beta: float = 6.0
    eps: float = 8 / 255
    step: float = 2 / 255
    steps: int = 10

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of the batch and its mean divergence under attack."""
        with frozen(network):
            x_adv = self.attack(network, x, rng)
        logits = network(x)
        return F.cross_entropy(logits, y) + self.beta * divergence(logits, network(x_adv), "batchmean")

    def attack(self, network: nn.Module, x0: Tensor, rng: torch.Generator) -> Tensor:
        """Maximise the divergence from the prediction at x0 with sign steps."""
        lowest, highest = (x0 - self.eps).clamp(min=0), (x0 + self.eps).clamp(max=1)
        with torch.no_grad():
            said = network(x0)
        x = (x0 + START * torch.empty_like(x0).normal_(generator=rng)).clamp(lowest, highest)
        for _ in range(self.steps):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(divergence(said, network(x), "sum"), x)
            x = (x + self.step * gradient.sign()).clamp(lowest, highest)
        return x.detach()


def divergence(logits: Tensor, other: Tensor, reduction: str) -> Tensor:
    """Return the Kullback-Leibler divergence KL(p || q) of the probabilities of two sets of logits."""
    return F.kl_div(F.log_softmax(other, 1), F.log_softmax(logits, 1), reduction=reduction, log_target=True)
