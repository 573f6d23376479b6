"""NATTACK."""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import attack_loss, blocks
from robustassay.attacks.common.patterns import PatternBasis, coarse
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, Ball, LInf

INSIDE: Final = 0.9
"""Values closer than 0.05 to 0 or 1 are treated as if they were at that distance: at 0 and 1 the tanh is flat."""

START: Final = 1e-3
"""Standard deviation of the first mean."""


@final
@register("attack", "nattack")
@dataclass(frozen=True)
class NAttack(Attack[ScoreAccess]):
    """Learns a Gaussian whose samples, through a tanh, are adversarial (Li et al. 2019, arXiv:1905.00441).

    A step queries `samples` draws and the mean: samples + 1 queries, all inside the ball. Weights are the margins,
    standardised over the draws of a row. Larger images are drawn on a grid of `side` values per side and interpolated.
    In the authors' code pixels at 0 and 1 hardly move; here they do.
    """

    info = AttackInfo(
        papers=("1905.00441",),
        formula="x = P((1 + tanh(atanh(2 * x0 - 1) + mu + sigma * u)) / 2), u normal\n"
        "mu <- mu + rate / sigma * mean over u of standardised(-m(x)) * u",
        reference="ARES",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 40
    samples: int = 500
    sigma: float = 0.1
    """Standard deviation of the Gaussian."""
    rate: float = 0.02
    side: int = 32

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Move the mean towards draws with a higher loss."""
        basis = PatternBasis.of(x0, coarse(self.side, "linear"))
        mean = START * view.rng.normal(basis.size)
        for _ in range(self.steps):
            here = attack_loss(view, _image(view.ball, basis, mean))
            mean, here = view.drop_finished(mean, here)
            mean = mean + self.rate / self.sigma * self._update(view, basis, mean, here)
        return _image(view.ball, basis, mean)

    def _update(self, view: ScoreAccess, basis: PatternBasis, mean: Tensor, here: Tensor) -> Tensor:
        """Average draws weighted by standardised reward, block by block: sum A u = (sum R u - mean R sum u) / std R."""
        noise_sum, product_sum, rewards = 0.0 * mean.double(), 0.0 * mean.double(), []
        for n in blocks(self.samples):
            noise = view.rng.normal(n, basis.size)
            points = _image(view.ball, basis, torch.add(mean[:, None], noise, alpha=self.sigma))
            reward = attack_loss(view, points) - here[:, None]
            noise_sum += noise.sum(1, dtype=torch.float64)
            product_sum += (reward[..., None] * noise).sum(1, dtype=torch.float64)
            rewards.append(reward.double())
        reward = torch.cat(rewards, 1)
        spread = reward.std(1, correction=0, keepdim=True) + 1e-7
        return ((product_sum - reward.mean(1, keepdim=True) * noise_sum) / (self.samples * spread)).float()


def _image(ball: Ball, basis: PatternBasis, weights: Tensor) -> Tensor:
    """Return the images of one set of weights per row, or of several."""
    # In float64, as the last bit of a float32 tanh depends on the size of the batch; in place, to save memory.
    squashed = basis.paint(weights).double()
    centre = ball.centre if squashed.dim() == ball.centre.dim() else ball.centre[:, None]
    start = (2 * centre.double() - 1).clamp(-INSIDE, INSIDE)
    squashed = squashed.add_(start.atanh()).tanh_().float()
    return ball.project(torch.add(centre - start.float() / 2, squashed, alpha=0.5))
