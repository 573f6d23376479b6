"""Momentum iterative method."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from assay.attacks.attack import Attack
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L1, L2, LInf


@final
@register("attack", "mim")
@dataclass(frozen=True)
class MIM(Attack[WhiteBox]):
    """Steps along accumulated, L1-normalised gradients (Dong et al. 2018, arXiv:1710.06081)."""

    access = WhiteBox
    norms = (LInf, L2, L1)

    steps: int = 10
    decay: float = 1.0

    def __call__(self, view: WhiteBox, x0: Tensor) -> Tensor:
        """Climb along the momentum; the steps add up to eps."""
        x, momentum = x0, torch.zeros_like(x0)
        for _ in range(self.steps):
            gradient, _ = view.gradient(x)
            momentum = self.decay * momentum + _unit_l1(gradient)
            x = view.ball.step(x, momentum, view.ball.eps / self.steps)
            x, momentum = view.keep(x, momentum)
        return x


def _unit_l1(gradient: Tensor) -> Tensor:
    size = gradient.abs().flatten(1).sum(1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return gradient / size.view(-1, *(1,) * (gradient.dim() - 1))
