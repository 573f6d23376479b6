"""Adversarial training with projected gradient descent under the L2 norm (Madry et al. 2018, arXiv:1706.06083)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.registry import register
from robustassay.train.measure import STEPS, batches, full_precision, is_correct
from robustassay.train.pgd import frozen
from robustassay.train.recipe import Recipe


@register("recipe", "pgd-l2")
@dataclass(frozen=True, kw_only=True)
class PGDL2Training(Recipe):
    """Cross-entropy on adversarial images from `steps` of PGD within `eps` in L2."""

    title: ClassVar[str] = "PGD adversarial training under L2"

    eps: float = 0.5
    step: float = 0.125
    steps: int = 7

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of the batch after the attack."""
        with frozen(network):
            x_adv = l2_pgd(network, x, y, self.eps, self.step, self.steps, rng)
        return F.cross_entropy(network(x_adv), y)

    def measurements(self, network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Return the accuracy under PGD with the norm and radius of the training."""
        rng = torch.Generator(x.device).manual_seed(0)
        robust = 0
        with full_precision():
            for x0, labels in batches(x, y):
                x_adv = l2_pgd(network, x0, labels, self.eps, self.eps / 4, STEPS, rng)
                robust += int((is_correct(network, x0, labels) & is_correct(network, x_adv, labels)).sum())
        attack = f"PGD-{STEPS}, L2 {self.eps:g}, step {self.eps / 4:g}, one random start"
        return {"l2_accuracy": robust / len(x), "l2_images": len(x), "l2_attack": attack}


def l2_pgd(
    network: nn.Module, x0: Tensor, y: Tensor, eps: float, step: float, steps: int, rng: torch.Generator
) -> Tensor:
    """Maximise the cross-entropy along normalised gradients, from a random point of the sphere around x0."""
    delta = torch.empty_like(x0).normal_(generator=rng)
    delta = eps * delta / _length(delta)
    for _ in range(steps):
        x = (x0 + delta).clamp(0, 1).detach().requires_grad_()
        loss = F.cross_entropy(network(x), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        delta = (x0 + delta + step * gradient / _length(gradient)).clamp(0, 1) - x0
        delta = delta * (eps / _length(delta)).clamp(max=1)
    return (x0 + delta).detach()


def _length(delta: Tensor) -> Tensor:
    return delta.flatten(1).square().sum(1).sqrt().clamp(min=1e-12).view(-1, 1, 1, 1)
