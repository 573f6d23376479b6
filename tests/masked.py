"""Models that look more robust than they are: each hides its gradients in a way of its own."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Masked(nn.Module):
    """A model with something done to its images before, or to its logits after."""

    def __init__(
        self,
        module: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor], Tensor] = lambda z: z,
    ) -> None:
        super().__init__()
        self.module, self.before, self.after = module, before, after
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.module(self.before(x)))


class WinnersTakeAll(nn.Module):
    """Only the largest activations of each layer pass (k-WTA, Xiao et al. 2020, arXiv:1905.10510)."""

    def __init__(self, module: nn.Module, share: float) -> None:
        super().__init__()
        self.module, self.share = module, share
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        relu, F.relu = F.relu, self.strongest  # type: ignore[assignment]
        try:
            logits: Tensor = self.module(x)
        finally:
            F.relu = relu
        return logits

    def strongest(self, h: Tensor) -> Tensor:
        flat = h.flatten(1)
        least = flat.topk(int(self.share * flat.shape[1]), 1).values[:, -1:]
        return (flat * (flat >= least)).view_as(h)


class Optimises(nn.Module):
    """Takes a step of its own on the image before it answers."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            mine = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.module(mine).amax(1).sum(), mine)
        logits: Tensor = self.module(x + 1e-3 * slope.sign())
        return logits


def quantised(module: nn.Module, levels: int = 16) -> nn.Module:
    """Rounds the input: the gradient is zero everywhere."""
    return Masked(module, before=lambda x: (x * (levels - 1)).round() / (levels - 1))


def noisy(module: nn.Module, size: float = 0.03) -> nn.Module:
    """Adds fresh noise to every image."""
    return Masked(module, before=lambda x: x + size * torch.randn_like(x))
