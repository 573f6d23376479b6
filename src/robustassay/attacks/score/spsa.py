"""Simultaneous perturbation stochastic approximation."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common import adam
from robustassay.attacks.common.gradient_estimate import central_difference, estimate_gradient, sign_directions
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, LInf, per_row


@final
@register("attack", "spsa")
@dataclass(frozen=True)
class SPSA(Attack[ScoreAccess]):
    """Adam on a gradient estimated from pairs of random signs (Uesato et al. 2018, arXiv:1802.05666).

    A step queries `samples` points around the present image, half of them mirrored, and that image: samples + 1
    queries. `rel_step` is the size, in parts of eps, of a step in which every value moves by Adam's full learning
    rate; 0.125 is 1/255 at eps 8/255 as in Dong et al. (arXiv:1912.11852), whose L2 rate of 0.005 on CIFAR is 0.277.
    """

    info = AttackInfo(
        papers=("1802.05666", "1912.11852"),
        formula="g as in nes with u of random signs;  x <- P(x + rate * Adam(g))",
        reference="advertorch",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 40
    samples: int = 500
    sigma: float = 1e-3
    rel_step: float = 0.125
    """Length of a step in which every value moves by Adam's full learning rate, as a part of eps."""

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Ascend from the clean image; the projected image goes on, with the moments as they are."""
        x, mean, square = x0, torch.zeros_like(x0), torch.zeros_like(x0)
        whole = view.ball.norm.size(torch.ones_like(x0[:1]).flatten(1)).float()
        for step in range(1, self.steps + 1):
            view.scores(x)
            x, mean, square = view.drop_finished(x, mean, square)
            derivative = central_difference(view, x, self.sigma)
            gradient = estimate_gradient(derivative, sign_directions(view, x), max(1, self.samples // 2))
            mean, square = adam.update_moments(mean, square, gradient)
            move = adam.direction(mean, square, step, tiny=1e-9)
            x = view.ball.project(x + per_row(self.rel_step * view.ball.eps / whole, x) * move)
        return x
