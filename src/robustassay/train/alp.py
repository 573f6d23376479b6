"""Adversarial logit pairing (Kannan et al. 2018, arXiv:1803.06373)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.registry import register
from robustassay.train.pgd import frozen, linf_pgd
from robustassay.train.recipe import Recipe


@register("recipe", "alp")
@dataclass(frozen=True, kw_only=True)
class LogitPairing(Recipe):
    """Mean cross-entropy on clean and adversarial images, plus `pairing` times the squared logit difference."""

    title: ClassVar[str] = "adversarial logit pairing"

    pairing: float = 0.5
    eps: float = 8 / 255
    step: float = 2 / 255
    steps: int = 10

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of both versions and the mean squared difference of their logits."""
        with frozen(network):
            x_adv = linf_pgd(network, x, y, self.eps, self.step, self.steps, rng)
        clean, attacked = network(x), network(x_adv)
        right = (F.cross_entropy(clean, y) + F.cross_entropy(attacked, y)) / 2
        return right + self.pairing * F.mse_loss(clean.float(), attacked.float())
