"""Random gradient-free method."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import forward, height, slope, sphere
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, LInf


@final
@register("attack", "rgf")
@dataclass(frozen=True)
class RGF(Attack[ScoreAccess]):
    """Steps along a slope estimated from directions of equal length (Nesterov & Spokoiny 2017; as in arXiv:1906.06919).

    A step looks at where it stands and asks `samples` points ahead: samples + 1 queries. Directions are uniform on
    the sphere whose mean square is one, so `sigma` is the typical change of a value. The loss is the margin, where
    the authors of P-RGF take cross-entropy, which vanishes where a model is sure.
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
        """Climb from the clean image."""
        x = x0
        for _ in range(self.steps):
            here = height(view, x)
            x, here = view.drop_finished(x, here)
            climb = slope(forward(view, x, here, self.sigma), sphere(view, x), self.samples)
            x = view.ball.step(x, climb, self.rel_step * view.ball.eps)
        return x
