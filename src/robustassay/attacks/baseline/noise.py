"""Random noise: the baselines that any attack worth its name must beat."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import DecisionAccess
from robustassay.threat import L0, L1, L2, LInf


@final
@register("attack", "uniform-noise")
@dataclass(frozen=True)
class UniformNoise(Attack[DecisionAccess]):
    """Points drawn uniformly from the ball."""

    info = AttackInfo(
        formula="x = P(x0 + u), u uniform in the ball; `steps` draws",
    )
    access = DecisionAccess
    norms = (LInf, L2, L1, L0)

    steps: int = 10
    """Random points that are tried per sample."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Draw and query `steps` points."""
        view.start_iterations()
        for _ in range(self.steps - 1):
            view.decisions(view.ball.sample(view.rng))
            view.drop_finished()
        return view.ball.sample(view.rng)


@final
@register("attack", "gaussian-noise")
@dataclass(frozen=True)
class GaussianNoise(Attack[DecisionAccess]):
    """Gaussian noise, scaled to the full radius."""

    info = AttackInfo(
        formula="x = P(x0 + eps * u / |u|), u normal; `steps` draws",
    )
    access = DecisionAccess
    norms = (LInf, L2, L1)

    steps: int = 10
    """Random points that are tried per sample."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Draw and query `steps` points."""
        view.start_iterations()
        for _ in range(self.steps - 1):
            view.decisions(_gaussian_at_radius(view))
            view.drop_finished()
        return _gaussian_at_radius(view)


def _gaussian_at_radius(view: DecisionAccess) -> Tensor:
    ball = view.ball
    noise = view.rng.normal(*ball.centre.shape[1:])
    scale = (ball.eps / ball.norm.size(noise.flatten(1))).float()
    return ball.project(ball.centre + noise * scale.view(-1, *(1,) * (noise.dim() - 1)))
