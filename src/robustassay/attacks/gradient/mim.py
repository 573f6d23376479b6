"""Momentum iterative method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf, per_row


@final
@register("attack", "mim")
@dataclass(frozen=True)
class MIM(Attack[GradientAccess]):
    """Steps along accumulated, L1-normalised gradients (Dong et al. 2018, arXiv:1710.06081).

    The steps add up to `path` radii; the benchmark of Dong et al. 2020 uses 1.5.
    """

    info = AttackInfo(
        papers=("1710.06081",),
        formula="v <- decay * v + g(x) / |g(x)|_1\nx <- P(x + step(v, path * eps / steps)), from x0",
        reference="torchattacks, TransferAttack",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 10
    decay: float = 1.0
    path: float = 1.0

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend along the momentum of the plain gradient."""
        return ascend_with_momentum(view, x0, self, lambda x: view.gradient(x)[0])


class MomentumSettings(Protocol):
    """The settings of an attack with momentum."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        ...

    @property
    def decay(self) -> float:
        """Part of the momentum that a step keeps."""
        ...

    @property
    def path(self) -> float:
        """Length of all steps together, in radii."""
        ...


def ascend_with_momentum(
    view: GradientAccess, x: Tensor, settings: MomentumSettings, gradient: Callable[[Tensor], Tensor]
) -> Tensor:
    """Ascend along accumulated gradients, however they are taken."""
    momentum = torch.zeros_like(x)
    for _ in range(settings.steps):
        momentum = settings.decay * momentum + _unit_l1(gradient(x))
        x = view.ball.step(x, momentum, settings.path / settings.steps * view.ball.eps)
        x, momentum = view.drop_finished(x, momentum)
    return x


def _unit_l1(gradient: Tensor) -> Tensor:
    size = gradient.abs().flatten(1).sum(1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return gradient / per_row(size, gradient)
