"""Natural evolution strategies."""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import (
    attack_loss,
    central_difference,
    estimate_gradient,
    normal_directions,
)
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, LInf

LEAST: Final = 0.1
"""The shortest step, as a part of the first one."""


@final
@register("attack", "nes")
@dataclass(frozen=True)
class NES(Attack[ScoreAccess]):
    """Steps along a gradient estimated from Gaussian pairs (Ilyas et al. 2018, arXiv:1804.08598).

    A step queries `samples` points, half of them mirrored, and the present point: samples + 1 queries. A row whose
    margin is no better than `plateau` steps before halves its step. As in Dong et al. (arXiv:1912.11852) the
    loss is the margin and there is no momentum; `rel_step=0.125` is their 1/255 at eps 8/255, 0.15 their L2 step.
    """

    info = AttackInfo(
        papers=("1804.08598", "1912.11852"),
        formula="g = mean over u of (m(x - sigma * u) - m(x + sigma * u)) / (2 * sigma) * u, u normal\n"
        "x <- P(x + step(g, rel_step * eps)); the step is halved where the margin does not change",
        reference="labsix/limited-blackbox-attacks, ARES",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 40
    samples: int = 500
    sigma: float = 1e-3
    rel_step: float = 0.125
    plateau: int = 20
    """Steps without progress after which the step is halved."""

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Ascend along the estimated gradient, with shorter steps on plateaus."""
        x, length = x0, self.rel_step * view.ball.eps
        past = x0.new_full(
            (len(x0), self.plateau), -torch.inf
        )  # below every loss, so a window that is not full never halves the step
        for _ in range(self.steps):
            here = attack_loss(view, x)
            stuck = here <= past[:, 0]
            length = torch.where(stuck, (length / 2).clamp(min=LEAST * self.rel_step * view.ball.eps), length)
            past = torch.cat((past[:, 1:].masked_fill(stuck[:, None], -torch.inf), here[:, None]), 1)
            x, length, past = view.drop_finished(x, length, past)
            derivative = central_difference(view, x, self.sigma)
            gradient = estimate_gradient(derivative, normal_directions(view, x), max(1, self.samples // 2))
            x = view.ball.step(x, gradient, length)
        return x
