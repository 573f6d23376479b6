"""Random gradient-free method."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import (
    attack_loss,
    estimate_gradient,
    forward_difference,
    sphere_directions,
)
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, LInf


@final
@register("attack", "rgf")
@dataclass(frozen=True)
class RGF(Attack[ScoreAccess]):
    """A gradient estimated from directions of equal length (Nesterov & Spokoiny 2017; as in arXiv:1906.06919).

    A step queries the present point and `samples` points ahead: samples + 1 queries. Directions are uniform on
    the sphere whose mean square is one, so `sigma` is the typical change of a value. The loss is the margin, not
    the cross-entropy of P-RGF's authors, which vanishes where a model is confident.
    """

    info = AttackInfo(
        papers=("1906.06919",),
        formula="g = mean over u of (m(x) - m(x + sigma * u)) / sigma * u, u uniform on a sphere\n"
        "x <- P(x + step(g, rel_step * eps))",
        reference="thu-ml/Prior-Guided-RGF",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 390
    samples: int = 50
    sigma: float = 1e-3
    rel_step: float = 0.1

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Ascend from the clean image."""
        x = x0
        for _ in range(self.steps):
            loss = attack_loss(view, x)
            x, loss = view.drop_finished(x, loss)
            derivative = forward_difference(view, x, loss, self.sigma)
            gradient = estimate_gradient(derivative, sphere_directions(view, x), self.samples)
            x = view.ball.step(x, gradient, self.rel_step * view.ball.eps)
        return x
