"""Models whose gradients are masked in many layers, each with the network that an attacker who knows it differentiates.

`robust_accuracy` is the hand-written attack: PGD along the gradient of that network, judged by the model itself.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class MaskedLayers:
    """A model, and what a hand-written attack differentiates in its place."""

    model: nn.Module
    smooth: nn.Module


def robust_accuracy(masked: MaskedLayers, x: Tensor, y: Tensor, eps: float, steps: int = 40) -> float:
    """Attack with PGD on the margin of the smooth network; every step is judged by the model."""
    draws = 8 if _is_random(masked.model, x) else 1
    x_adv, stands = x.clone(), torch.ones(len(x), dtype=torch.bool)
    for _ in range(steps):
        images = x_adv.clone().requires_grad_()
        logits = torch.stack([masked.smooth(images) for _ in range(draws)]).mean(0)
        others = logits.scatter(1, y[:, None], float("-inf")).amax(1)
        margin = others - logits.gather(1, y[:, None]).squeeze(1)
        (slope,) = torch.autograd.grad(margin.sum(), images)
        x_adv = (x + (x_adv + 0.1 * eps * slope.sign() - x).clamp(-eps, eps)).clamp(0, 1)
        stands &= _answers(masked.model, x_adv, draws) == y
    return float(stands.float().mean())


@torch.no_grad()
def _answers(model: nn.Module, x: Tensor, draws: int) -> Tensor:
    return torch.stack([model(x).argmax(1) for _ in range(draws)]).mode(0).values


@torch.no_grad()
def _is_random(model: nn.Module, x: Tensor) -> bool:
    return not torch.equal(model(x[:2]), model(x[:2]))


class Behind(nn.Module):
    """A layer, then a change of its outputs."""

    def __init__(self, layer: nn.Module, change: Change) -> None:
        super().__init__()
        self.layer, self.change = layer, change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.layer(x))


def behind_every_norm(network: nn.Module, change: Callable[[nn.BatchNorm2d], Change]) -> nn.Module:
    """Copy a network, with a change behind every normalisation."""
    changed = copy.deepcopy(network).eval()
    for parent in list(changed.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.BatchNorm2d):
                setattr(parent, name, Behind(layer, change(layer)))
    return changed.eval()


def rounded(levels: float) -> Change:
    return lambda h: (h * levels).round() / levels


def with_gradient_of(change: Change, pretended: Change = lambda h: h) -> Change:
    """The values of a change, with the gradient of another one."""
    return lambda h: change(h).detach() + pretended(h) - pretended(h).detach()


def mean_sparse(norm: nn.BatchNorm2d, width: float = 0.3) -> Change:
    """Values near their mean become the mean (MeanSparse, Amini et al. 2024, arXiv:2406.05927)."""
    mean = norm.bias.detach().view(-1, 1, 1)
    deviation = norm.weight.detach().abs().view(-1, 1, 1)

    def sparse(h: Tensor) -> Tensor:
        return torch.where((h - mean).abs() <= width * deviation, mean, h)

    return sparse


def k_winners(share: float) -> Change:
    """The largest values of each image pass, chosen by index."""

    def winners(h: Tensor) -> Tensor:
        flat = h.flatten(1)
        kept = flat.topk(int(share * flat.shape[1]), 1).indices
        return (flat * torch.zeros_like(flat).scatter(1, kept, 1.0)).view_as(h)

    return winners


class _Rounds(torch.autograd.Function):
    """Rounds, and returns a gradient with random signs."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, levels: float) -> Tensor:
        return (h * levels).round() / levels

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        noise = torch.empty_like(slopes[0]).normal_(generator=torch.Generator().manual_seed(0))
        return slopes[0] * noise.sign(), None


class SaturatedBranch(nn.Module):
    """The saturated outputs of one network decide; a little of another one gives a gradient that is locally true."""

    def __init__(self, decides: nn.Module, decoy: nn.Module, steepness: float = 10.0) -> None:
        super().__init__()
        self.decides, self.decoy, self.steepness = decides, decoy, steepness
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 10 * torch.tanh(self.steepness * self.decides(x)) + 0.1 * self.decoy(x)
        return logits


class GradientPurifier(nn.Module):
    """Takes gradient steps towards its own answer, then forgets them; `detached` says whether its graph shows them."""

    def __init__(self, module: nn.Module, detached: bool, steps: int = 2, size: float = 0.5) -> None:
        super().__init__()
        self.module, self.detached, self.steps, self.size = module, detached, steps, size
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        better = x.detach() if self.detached else x
        for _ in range(self.steps):
            with torch.enable_grad():
                mine = better.detach().requires_grad_() if self.detached or not better.requires_grad else better
                loss = self.module(mine).log_softmax(1).amax(1).sum()
                (slope,) = torch.autograd.grad(loss, mine, create_graph=not self.detached)
            better = (better + self.size * slope).clamp(0, 1)
        logits: Tensor = self.module(better)
        return logits


class BackwardPurifier(nn.Module):
    """As `GradientPurifier`, written with `backward()` and `.grad`, in a block without gradients."""

    def __init__(self, module: nn.Module, steps: int = 2, size: float = 0.5) -> None:
        super().__init__()
        self.module, self.steps, self.size = module, steps, size
        self.eval()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            with torch.enable_grad():
                mine = x.detach().requires_grad_()
                self.module(mine).log_softmax(1).amax(1).sum().backward()
            x = (x + self.size * mine.grad).clamp(0, 1)  # type: ignore[operator]
        logits: Tensor = self.module(x)
        return logits


class Sealed(nn.Module):
    """A network in inference mode, with 5-bit activations written in place."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = behind_every_norm(module, lambda norm: lambda h: h.mul_(8).floor_().div_(8))
        self.eval()

    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(x)
        return logits


def _noisy(size: float) -> Change:
    return lambda h: h + size * torch.randn_like(h)


LAYERS: dict[str, Callable[[nn.Module, nn.Module], MaskedLayers]] = {
    "mean sparse": lambda net, other: MaskedLayers(
        behind_every_norm(net, mean_sparse),
        behind_every_norm(net, lambda norm: with_gradient_of(mean_sparse(norm))),
    ),
    "rounded branches": lambda net, other: MaskedLayers(
        behind_every_norm(net, lambda norm: rounded(2)),
        behind_every_norm(net, lambda norm: with_gradient_of(rounded(2))),
    ),
    "custom rounding": lambda net, other: MaskedLayers(
        behind_every_norm(net, lambda norm: lambda h: _Rounds.apply(h, 2)),
        behind_every_norm(net, lambda norm: with_gradient_of(rounded(2))),
    ),
    "detached branches": lambda net, other: MaskedLayers(
        behind_every_norm(net, lambda norm: lambda h: h.detach()),
        net,
    ),
    "k winners by index": lambda net, other: MaskedLayers(
        behind_every_norm(net, lambda norm: k_winners(0.3)),
        behind_every_norm(net, lambda norm: with_gradient_of(k_winners(0.3), F.relu)),
    ),
    "activation noise": lambda net, other: MaskedLayers(
        behind_every_norm(net, lambda norm: lambda h: _noisy(0.2)(rounded(2)(h))),
        behind_every_norm(net, lambda norm: lambda h: _noisy(0.2)(with_gradient_of(rounded(2))(h))),
    ),
    "straight-through rounding": lambda net, other: MaskedLayers(
        behind_every_norm(net, lambda norm: with_gradient_of(rounded(2), lambda h: 0.01 * torch.sin(99 * h))),
        behind_every_norm(net, lambda norm: with_gradient_of(rounded(2))),
    ),
    "inference mode": lambda net, other: MaskedLayers(
        Sealed(net),
        behind_every_norm(net, lambda norm: with_gradient_of(lambda h: (8 * h).floor() / 8)),
    ),
    "saturated branch": lambda net, other: MaskedLayers(SaturatedBranch(net, other), net),
    "purifier by gradients": lambda net, other: MaskedLayers(
        GradientPurifier(net, detached=True), GradientPurifier(net, detached=False)
    ),
    "purifier by backward": lambda net, other: MaskedLayers(
        BackwardPurifier(net), GradientPurifier(net, detached=False)
    ),
}
"""Masked models by name, from the network that they mask and another one."""
