"""Training that moves the decision boundary away (DeepDefense, Yan et al. 2018, arXiv:1803.00404), approximated."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.registry import register
from robustassay.train.recipe import Recipe

MAX_LOG_PENALTY = 3.0  # One wrong image far from the boundary must not dominate the batch.


@register("recipe", "deepdefense")
@dataclass(frozen=True, kw_only=True)
class DeepDefense(Recipe):
    """Cross-entropy plus `weight` times a penalty that falls with the L2 distance to the boundary over |x|.

    With t that ratio, below 0 where the answer is wrong, the penalty is exp(-reward t), or exp(-blame t) below 0.
    The paper follows DeepFool to the boundary; here the distance is that of the network linearised at the image, to
    the nearest of the `rivals` likeliest other classes: DeepFool's first step.
    """

    title: ClassVar[str] = "DeepDefense training"
    note: ClassVar[str] = "Distances to the boundary are linearised at the image instead of following DeepFool."
    compiles: ClassVar[bool] = False  # The loss needs second derivatives, which compiled networks do not support.

    rate: float = 0.01
    clip: float = 1.0
    weight: float = 15.0
    reward: float = 25.0
    blame: float = 5.0
    rivals: int = 3

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy and penalty of the batch."""
        # In eval mode, batch norm does not mix the images of a batch.
        network.eval()
        # In full precision: the loss divides by a gradient norm and is differentiated again.
        with torch.autocast(x.device.type, enabled=False):
            x = x.detach().requires_grad_()
            logits = network(x)
            ratio = linearised_distance(logits, x, y, self.rivals) / x.detach().flatten(1).norm(dim=1).clamp(min=1e-6)
            per_ratio = self.blame + (self.reward - self.blame) * (ratio >= 0)
            penalty = (-per_ratio * ratio).clamp(max=MAX_LOG_PENALTY).exp()
            loss: Tensor = F.cross_entropy(logits, y) + self.weight * penalty.mean()
        return loss


def linearised_distance(logits: Tensor, x: Tensor, y: Tensor, rivals: int) -> Tensor:
    """Return the L2 distance from x to the nearest decision boundary of a linear approximation.

    It is negative where a rival is ahead, and can be differentiated.
    """
    own = logits.gather(1, y[:, None])
    others = logits.detach().scatter(1, y[:, None], -torch.inf).topk(min(rivals, logits.shape[1] - 1)).indices
    leads = own - logits.gather(1, others)
    distances = []
    for lead in leads.unbind(1):
        (slope,) = torch.autograd.grad(lead.sum(), x, create_graph=True)
        distances.append(lead / slope.flatten(1).square().sum(1).clamp(min=1e-12).sqrt())
    return torch.stack(distances).amin(0)
