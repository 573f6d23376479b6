"""Layers with hard decisions, each with a soft stand-in for training and for the attacker."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


class Opening(nn.Module):
    """A layer that is soft while `opened`, and while it is trained."""

    opened: bool = False

    @property
    def soft(self) -> bool:
        """Whether gradients are wanted."""
        return self.training or self.opened


class Hard(Opening):
    """A hard function; when soft, with the gradient of the stand-in."""

    def __init__(self, hard: Change, stand_in: Change) -> None:
        super().__init__()
        self.hard, self.stand_in = hard, stand_in

    def forward(self, h: Tensor) -> Tensor:
        """Return the hard value."""
        value = self.hard(h)
        if not self.soft:
            return value + 0 * h
        smooth = self.stand_in(h)
        return smooth + (value - smooth).detach()


class Middle(Opening):
    """The median over all places, whose gradient is true and reaches one place; when soft, the mean."""

    def forward(self, h: Tensor) -> Tensor:
        """Return one value per channel."""
        return h.flatten(2).mean(2) if self.soft else h.flatten(2).median(2).values


class Cut(Opening):
    """Detaches, unless soft."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the same values."""
        return h if self.soft else h.detach()


def one_hot(h: Tensor) -> Tensor:
    """Return 1 for the largest value along the last axis, else 0."""
    return F.one_hot(h.argmax(-1), h.shape[-1]).to(h)


def winner(sharpness: float = 1.0) -> Hard:
    """Choose the largest value along the last axis."""
    return Hard(one_hot, lambda h: (sharpness * h).softmax(-1))


def step(sharpness: float = 4.0) -> Hard:
    """Compare with zero."""
    return Hard(lambda h: (h > 0).to(h), lambda h: torch.sigmoid(sharpness * h))


def sign() -> Hard:
    """Return the sign, with the slope of a clipped line."""
    return Hard(lambda h: torch.where(h > 0, 1.0, -1.0).to(h), lambda h: F.hardtanh(h))


def saturated() -> Hard:
    """A tanh so steep that it has no slope, and its softer stand-in."""
    return Hard(lambda h: torch.tanh(200 * h), lambda h: torch.tanh(2 * h))


def bernoulli() -> Hard:
    """Draw 0 or 1."""
    return Hard(lambda h: torch.bernoulli(torch.sigmoid(3 * h)), lambda h: torch.sigmoid(3 * h))


def spikes(h: Tensor, duration: int = 6) -> Tensor:
    """Integrate a constant current and count the spikes."""
    level, count = torch.full_like(h, 0.5), torch.zeros_like(h)
    for _ in range(duration):
        level = level + h
        fired = (level >= 1).to(h)
        level, count = level - fired, count + fired
    return count / duration


def spiking() -> Hard:
    """Integrate-and-fire neurons."""
    return Hard(spikes, lambda h: h.clamp(0, 1))


def ranks(h: Tensor) -> Tensor:
    """Return the rank of each value, from -1 to 1."""
    return 2 * h.argsort(-1).argsort(-1).to(h) / (h.shape[-1] - 1) - 1


def ranked() -> Hard:
    """Replace values by their ranks."""
    return Hard(ranks, lambda h: torch.tanh((h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)))
