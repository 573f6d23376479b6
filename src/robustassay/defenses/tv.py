"""Total variation minimisation."""

import math
from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.linalg import vector_norm

from robustassay.defenses.defense import Transform, setting
from robustassay.registry import register

_STEP: Final = 1 / math.sqrt(8)  # the difference operator of an image has a norm below sqrt(8)
_TINY: Final = 1e-12


@final
@register("defense", "tv")
@dataclass(frozen=True)
class TotalVariation(Transform):
    """Drop random values and reconstruct them with minimum total variation (Guo et al. 2018, arXiv:1711.00117).

    The image z of least 1/2 |keep * (z - x)|^2 + weight * TV(z) is sought, TV being the sum of the L2 norms of the
    differences between neighbouring rows and neighbouring columns, by the primal-dual method of Chambolle and Pock
    (2011), a fixed number of steps for all images at once.
    """

    random = True
    shattered = True

    drop: float = setting(0.5, 0, 0.95)
    """Part of the values that is dropped."""
    weight: float = setting(0.03)
    """Weight of the total variation."""
    steps: int = setting(50, 1)
    """Iterations of the reconstruction."""

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Draw the values to drop per image, and reconstruct them from the others."""
        keep = (torch.rand_like(x) >= self.drop).to(x)
        return self.restore(x, keep)

    def restore(self, x: Tensor, keep: Tensor) -> Tensor:
        """Return the image of small variation that is close to x where `keep` is 1; other values of x are not used."""
        z = ahead = _filled(x, keep)
        rows, columns = torch.zeros_like(_down(x)), torch.zeros_like(_across(x))
        for _ in range(self.steps):
            rows = _within(rows + _STEP * _down(ahead), self.weight, dim=3)
            columns = _within(columns + _STEP * _across(ahead), self.weight, dim=2)
            pull = _down_adjoint(rows) + _across_adjoint(columns)
            last, z = z, (z - _STEP * (pull - keep * x)) / (1 + _STEP * keep)
            ahead = 2 * z - last
        return z.clamp(0, 1)


def variation(x: Tensor) -> Tensor:
    """Return the total variation of each image."""
    total: Tensor = vector_norm(_down(x), dim=3).sum((1, 2)) + vector_norm(_across(x), dim=2).sum((1, 2))
    return total


def _filled(x: Tensor, keep: Tensor) -> Tensor:
    """Return the start image: dropped values are replaced by the mean of kept neighbours."""
    near = F.avg_pool2d(keep * x, 5, 1, 2, count_include_pad=False)
    share = F.avg_pool2d(keep, 5, 1, 2, count_include_pad=False)
    return torch.where(keep > 0, x, torch.where(share > 0, near / share.clamp(min=_TINY), 0.5))


def _down(x: Tensor) -> Tensor:
    return x[:, :, 1:] - x[:, :, :-1]


def _across(x: Tensor) -> Tensor:
    return x[:, :, :, 1:] - x[:, :, :, :-1]


def _down_adjoint(p: Tensor) -> Tensor:
    return F.pad(p, (0, 0, 1, 0)) - F.pad(p, (0, 0, 0, 1))


def _across_adjoint(p: Tensor) -> Tensor:
    return F.pad(p, (1, 0)) - F.pad(p, (0, 1))


def _within(p: Tensor, radius: float, dim: int) -> Tensor:
    """Project vectors along a dimension to a maximum length."""
    length: Tensor = vector_norm(p, dim=dim, keepdim=True)
    return p * (radius / length.clamp(min=max(radius, _TINY)))
