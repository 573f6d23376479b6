"""Ensemble adversarial training (Tramer et al. 2018, arXiv:1705.07204)."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.models import zoo
from robustassay.registry import register
from robustassay.train.pgd import frozen
from robustassay.train.recipe import Recipe


@register("recipe", "ensemble-adv")
@dataclass(frozen=True, kw_only=True)
class EnsembleAdversarial(Recipe):
    """Mean cross-entropy on clean images and on one-step adversarial examples.

    `sources` names models of the zoo, joined by +. Each batch is cut into as many parts as there are sources and
    the network itself, and each of them attacks its part: the paper's turns from batch to batch, taken at once.
    """

    title: ClassVar[str] = "ensemble adversarial training"

    sources: str = "resnet20-natural+resnet56-natural"
    eps: float = 8 / 255

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of both versions of the batch."""
        with frozen(network):
            attackers = [network, *(source(name, x.device) for name in self.sources.split("+"))]
            parts = x.tensor_split(len(attackers))
            x_adv = torch.cat([fgsm(by, part, self.eps) for by, part in zip(attackers, parts, strict=True)])
        return (F.cross_entropy(network(x), y) + F.cross_entropy(network(x_adv), y)) / 2


def fgsm(network: nn.Module, x0: Tensor, eps: float) -> Tensor:
    """Take one step away from the predicted label; a step from the true label would leak it."""
    x = x0.detach().requires_grad_()
    logits = network(x)
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, logits.argmax(1), reduction="sum"), x)
    return (x0 + eps * gradient.sign()).clamp(0, 1)


@cache
def source(name: str, device: torch.device) -> nn.Module:
    """Return a zoo model in eval mode, loaded once per process."""
    return zoo.load(name, device)
