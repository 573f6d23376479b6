"""Momentum iterative method."""

from collections.abc import Callable
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
        """Climb along the momentum of the plain gradient."""
        return climb_with_momentum(view, x0, self.steps, self.decay, lambda x: view.gradient(x)[0])


def climb_with_momentum(
    view: WhiteBox, x: Tensor, steps: int, decay: float, gradient: Callable[[Tensor], Tensor]
) -> Tensor:
    """Climb along accumulated gradients, however they are taken; the steps add up to eps."""
    momentum = torch.zeros_like(x)
    for _ in range(steps):
        momentum = decay * momentum + _unit_l1(gradient(x))
        x = view.ball.step(x, momentum, view.ball.eps / steps)
        x, momentum = view.keep(x, momentum)
    return x


def _unit_l1(gradient: Tensor) -> Tensor:
    size = gradient.abs().flatten(1).sum(1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return gradient / size.view(-1, *(1,) * (gradient.dim() - 1))
