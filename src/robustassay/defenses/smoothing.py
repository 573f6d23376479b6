"""Randomised smoothing with certificates."""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from robustassay.certification.randomized_smoothing import Certificates, Labels, certify, majority
from robustassay.defenses.defended import Defended, Pass, adaptive, naive
from robustassay.defenses.defense import Defense, setting
from robustassay.defenses.ensemble import mean_probability
from robustassay.registry import register


@final
@register("defense", "smoothing")
@dataclass(frozen=True)
class Smoothing(Defense):
    """Predict the most frequent label under Gaussian noise (Cohen et al. 2019, arXiv:1902.02918).

    An attacker sees probabilities averaged over `draws` noisy copies; predictions and certificates vote over many
    more. The model should be trained under noise of the same sigma.
    """

    random = True

    sigma: float = setting(0.25, 1e-6)
    """Standard deviation of the noise."""
    draws: int = setting(16, 1)
    """Noisy copies per gradient of an attacker."""

    def defend(self, model: nn.Module) -> "Smoothed":
        """Smooth a module."""
        return Smoothed(model, self.sigma, self.draws)


@final
class Smoothed(Defended):
    """A smoothed classifier: logits for attacks, votes for predictions and certificates."""

    def __init__(self, model: nn.Module, sigma: float = 0.25, draws: int = 16) -> None:
        super().__init__(random=True)
        self.model = model
        self.defense = Smoothing(sigma, draws)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithm of the mean probabilities over a few draws."""
        return self._average(self.model, x)

    def differentiable(self, x: Tensor) -> Tensor:
        """Return the same for other draws, with the adaptive pass of the model."""
        return self._average(adaptive(self.model), x)

    def naive(self, x: Tensor) -> Tensor:
        """Return the logits without noise."""
        return naive(self.model)(x)

    def predict(self, x: Tensor, draws: int = 1000, alpha: float = 0.001, batch_size: int = 256) -> Labels:
        """Return the majority label per image, or `ABSTAIN` if the majority is not significant."""
        return majority(self.counts(x, draws, batch_size), alpha)

    def certify(
        self,
        x: Tensor,
        draws: int = 10_000,
        guess_draws: int = 100,
        alpha: float = 0.001,
        simultaneous: int = 1,
        batch_size: int = 256,
    ) -> Certificates:
        """Choose the label of each image from a few draws, then certify a radius with many other draws."""
        guess = self.counts(x, guess_draws, batch_size).argmax(1)
        votes = self.counts(x, draws, batch_size)[np.arange(len(guess)), guess]
        return certify(guess, votes, draws, self.defense.sigma, alpha, simultaneous)

    @torch.no_grad()
    def counts(self, x: Tensor, draws: int, batch_size: int = 256) -> Labels:
        """Return the number of draws per image and label under noise, `[n, classes]`."""
        found = []
        for image in x:
            sizes = [min(batch_size, draws - start) for start in range(0, draws, batch_size)]
            logits = (self.model(self._noisy(image[None], size)) for size in sizes)
            found.append(sum(torch.bincount(each.argmax(1), minlength=each.shape[1]) for each in logits))
        counts: Labels = torch.stack([torch.as_tensor(row) for row in found]).cpu().numpy()
        return counts

    def extra_repr(self) -> str:
        """Return the settings, which are part of the identity of a run."""
        return repr(self.defense)

    def _average(self, model: Pass, x: Tensor) -> Tensor:
        logits = model(self._noisy(x, self.defense.draws))
        return mean_probability(logits.view(len(x), self.defense.draws, -1).movedim(1, 0))

    def _noisy(self, x: Tensor, copies: int) -> Tensor:
        """Add noise without clipping: the certificate holds only for the unclipped sum."""
        repeated = x.repeat_interleave(copies, 0)
        return repeated + self.defense.sigma * torch.randn_like(repeated)
