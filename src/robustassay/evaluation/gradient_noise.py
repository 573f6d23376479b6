"""Chooses how many draws of a random model a gradient averages (EOT): enough to make its direction steady.

From single draws at a few samples follow the length of the exact mean gradient and the variance of a draw, and from
these the cosine that a mean over any number of draws has with the exact mean.
"""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.data import Dataset
from robustassay.target import TargetModel
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin

SAMPLES: Final = 8
MEASURED_DRAWS: Final = 16

STEADY: Final = 0.9
"""The cosine that half of the samples must have."""

DRAWS: Final = (20, 40, 80)
"""Numbers of draws, in the order in which they are tried."""


@final
@dataclass(frozen=True)
class GradientNoise:
    """Per sample, the squared length of the exact mean gradient and the variance of one draw."""

    squared_mean: Tensor
    variance: Tensor

    def cosine(self, draws: int) -> float:
        """Return the expected cosine between a mean over so many draws and the exact mean: the median over samples."""
        total = self.squared_mean + self.variance / draws
        return float(torch.where(total > 0, self.squared_mean / total, 1.0).sqrt().median())

    @property
    def draws(self) -> int:
        """The smallest number of draws that makes the gradient steady; the largest one tried where none does."""
        return next((draws for draws in DRAWS if self.cosine(draws) >= STEADY), DRAWS[-1])


def measure_gradient_noise(target: TargetModel, dataset: Dataset) -> GradientNoise:
    """Measure single draws of the margin's gradient at the first samples."""
    once = target.with_draws(1)
    x = dataset.images(slice(0, SAMPLES)).to(target.device)
    goal = Untargeted(dataset.labels[:SAMPLES].to(target.device))
    gradients = [once.gradient(x, logit_margin, goal)[0].flatten(1).double() for _ in range(MEASURED_DRAWS)]
    once.check()
    drawn = torch.stack(gradients)
    variance = drawn.var(0).sum(1)
    return GradientNoise((drawn.mean(0).square().sum(1) - variance / MEASURED_DRAWS).clamp(min=0), variance)
