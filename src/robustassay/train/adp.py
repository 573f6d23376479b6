"""Adaptive diversity promoting training of ensembles (Pang et al. 2019, arXiv:1901.08846)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.resnet_ensemble import MeanOfProbabilities, log_mean
from robustassay.registry import register
from robustassay.train.recipe import Recipe

FLOOR = 1e-6  # Added to the diagonal: members that agree would have diversity 0 and a logarithm of minus infinity.


@register("recipe", "adp")
@dataclass(frozen=True, kw_only=True)
class ADP(Recipe):
    """Cross-entropy of every member, minus `alpha` times the entropy of the ensemble and `beta` times log diversity."""

    title: ClassVar[str] = "ADP training"
    compiles: ClassVar[bool] = False  # The loss calls the members one by one.

    alpha: float = 2.0
    beta: float = 0.5

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the members' mean cross-entropies, summed, with the regulariser of the paper."""
        if not isinstance(network, MeanOfProbabilities):
            raise BadRequest("ADP trains ensembles: use the architecture resnet-ensemble.")
        votes = network.votes(x).float()
        right = torch.stack([F.cross_entropy(logits, y) for logits in votes]).sum()
        regulariser = self.alpha * entropy(log_mean(votes)) + self.beta * log_diversity(votes, y)
        return right - regulariser.mean()


def entropy(log_probabilities: Tensor) -> Tensor:
    """Return the entropy of each row of log-probabilities."""
    return -(log_probabilities.exp() * log_probabilities).sum(1)


def log_diversity(votes: Tensor, y: Tensor) -> Tensor:
    """Return, per image, the logarithm of the squared volume spanned by the members' non-maximal probabilities.

    The vectors are the members' probabilities of all classes but y, normalised to length 1.
    """
    others = y[:, None] != torch.arange(votes.shape[-1], device=y.device)
    sides = F.normalize(votes.softmax(-1) * others, dim=-1, eps=1e-20)
    gram = torch.einsum("knc,lnc->nkl", sides, sides) + FLOOR * torch.eye(len(votes), device=votes.device)
    return log_determinant(gram)


def log_determinant(matrices: Tensor) -> Tensor:
    """Return log determinants of small positive matrices by elimination; library routines fail in CUDA graphs."""
    total = matrices.new_zeros(len(matrices))
    while matrices.shape[-1]:
        pivot = matrices[:, 0, 0].clamp(min=FLOOR)
        total = total + pivot.log()
        column = matrices[:, 1:, 0]
        matrices = matrices[:, 1:, 1:] - column[:, :, None] * column[:, None, :] / pivot[:, None, None]
    return total
