"""Bandits with time and data priors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import attack_loss
from robustassay.attacks.common.patterns import PatternBasis, coarse
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, LInf, per_row


@final
@register("attack", "bandits")
@dataclass(frozen=True)
class Bandits(Attack[ScoreAccess]):
    """Learns a gradient prior over time and tiles, with two queries at a time (Ilyas et al. 2019, arXiv:1807.07978).

    The prior is an image of `side` tiles per side, where the image is larger. Two opposite points around it are
    queried; it learns by exponentiated gradients under L∞, by plain ones under L2. With the present point a step
    costs 3 queries. Differences are divided by their root mean square so far, so that `online_rate` means the same for
    any model; the authors use the plain cross-entropy, which vanishes where a model is confident.
    """

    info = AttackInfo(
        papers=("1807.07978",),
        formula="v: the gradient prior\n"
        "s = m(x + probe * unit(v - u)) - m(x + probe * unit(v + u)), u normal\n"
        "v <- tanh(atanh v + rate * s * u) under L∞, v + rate * s * u under L2;  x <- P(x + step(v, rel_step * eps))",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 6_600
    rel_step: float = 0.1
    online_rate: float = 0.1
    """Learning rate of the prior."""
    exploration: float = 1.0
    """Length of the random turn from the prior to the queried points."""
    probe: float = 0.1
    """Distance of the queried points from the image."""
    side: int = 50

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Query around the prior, update it, and follow it."""
        basis, learn = PatternBasis.of(x0, coarse(self.side, "nearest")), _LEARNS[type(view.ball.norm)]
        x, prior = x0, x0.new_zeros(len(x0), basis.size)
        squares = torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
        for step in range(1, self.steps + 1):
            view.scores(x)
            x, prior, squares = view.drop_finished(x, prior, squares)

            noise = view.rng.normal(basis.size)
            aside = self.exploration / basis.size**0.5 * noise
            probes = basis.paint(torch.stack((prior + aside, prior - aside), 1))
            size = probes.flatten(2).square().sum(2, dtype=torch.float64).sqrt().clamp(min=1e-30).float()
            losses = attack_loss(view, (x[:, None] + self.probe * probes / per_row(size, probes)).clamp(0, 1))
            gain = (losses[:, 0] - losses[:, 1]).double()
            squares = squares + gain.square()
            scaled_gain = torch.where(squares > 0, gain / (squares / step).sqrt().clamp(min=1e-30), 0).float()
            prior = learn(prior, self.online_rate * scaled_gain[:, None] * noise)
            x = view.ball.step(x, basis.paint(prior), self.rel_step * view.ball.eps)
        return x


def _exponentiated(prior: Tensor, gain: Tensor) -> Tensor:
    """Add to the prior in the space of atanh: its values stay between -1 and 1."""
    return (prior.clamp(-1 + 1e-6, 1 - 1e-6).double().atanh() + gain).tanh().float()


def _plain(prior: Tensor, gain: Tensor) -> Tensor:
    return prior + gain


_LEARNS: Final[dict[type, Callable[[Tensor, Tensor], Tensor]]] = {LInf: _exponentiated, L2: _plain}
