"""An ensemble of residual networks, as trained by ADP (Pang et al. 2019, arXiv:1901.08846)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.resnet import ResNet
from robustassay.registry import register


@register("architecture", "resnet-ensemble")
@dataclass(frozen=True)
class ResNetEnsemble:
    """Residual networks of one shape; the ensemble returns the mean of their probabilities."""

    members: int = 3
    depth: int = 20
    width: int = 1

    def __post_init__(self) -> None:
        if self.members < 2:
            raise BadRequest(f"An ensemble needs at least two members, not {self.members}.")
        ResNet(self.depth, self.width)

    @property
    def title(self) -> str:
        """The name in tables: `3 x ResNet-20`."""
        return f"{self.members} x {ResNet(self.depth, self.width).title}"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to the logarithms of probabilities."""
        member = ResNet(self.depth, self.width)
        return MeanOfProbabilities([member.build(classes) for _ in range(self.members)])


class MeanOfProbabilities(nn.Module):
    """Averages its members' probabilities and returns their logarithm, which serves as logits."""

    replays = True
    """Every call makes the same operations."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithms of the mean probabilities."""
        return log_mean(self.votes(x))

    def votes(self, x: Tensor) -> Tensor:
        """Return each member's own logits, [members, images, classes]."""
        return torch.stack([member(x) for member in self.members])


def log_mean(logits: Tensor) -> Tensor:
    """Return the logarithm of the probabilities averaged over the first dimension."""
    return F.log_softmax(logits, -1).logsumexp(0) - math.log(len(logits))
