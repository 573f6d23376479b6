"""Decoupled direction and norm."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L2


@final
@register("attack", "ddn")
@dataclass(frozen=True)
class DDN(Attack[GradientAccess]):
    """Gradient steps on a sphere that shrinks where it reaches the goal (Rony et al. 2019, arXiv:1811.09600)."""

    info = AttackInfo(
        papers=("1811.09600",),
        formula="x <- x0 + r * unit(x + a_k * g / |g|_2 - x0), a_k falling along a cosine\n"
        "r <- r * (1 - gamma) where the goal is reached, else r * (1 + gamma)",
        reference="adv-lib, foolbox",
    )
    access = GradientAccess
    norms = (L2,)
    seeks_minimum = True

    steps: int = 300
    gamma: float = 0.05
    """Part by which the sphere shrinks or grows at each step."""
    initial_norm: float = 1.0
    """First radius of the sphere."""

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Take the direction from the gradient and adapt the norm to success or failure, in turn."""
        x, norm = x0, torch.full((len(x0),), self.initial_norm, device=x0.device)
        for step in range(self.steps):
            gradient, logits = view.gradient(x)
            norm = norm * torch.where(view.goal.reached(logits), 1 - self.gamma, 1 + self.gamma)
            norm = norm.clamp(max=math.sqrt(x0[0].numel()))  # the largest distance in the box
            length = 0.01 + 0.99 * (1 + math.cos(math.pi * step / self.steps)) / 2
            x = _onto_sphere(view, x + length * _direction(view, gradient), norm)
            x, norm = view.drop_finished(x, norm)
        return x


def _direction(view: GradientAccess, gradient: Tensor) -> Tensor:
    """Return the gradient at length one; a random direction where it is zero."""
    flat = gradient.flatten(1)
    lost = (flat == 0).all(1)
    if lost.any():
        flat = flat.clone()
        flat[lost] = view.rng.among(lost).normal(flat.shape[1])
    unit = view.ball.norm.steepest(flat, flat, flat, flat.new_ones(len(flat)))
    return unit.view_as(gradient)


def _onto_sphere(view: GradientAccess, x: Tensor, norm: Tensor) -> Tensor:
    """Scale the perturbation to the norm; the other pixels make up for what the box clips.

    The projection shortens and never lengthens, so it is given a perturbation that is too long.
    """
    centre = view.ball.centre.flatten(1)
    delta = x.flatten(1) - centre
    largest = delta.abs().amax(1, keepdim=True).clamp(min=torch.finfo(delta.dtype).tiny)
    delta = view.ball.norm.project(delta / largest * 1e3 * norm[:, None], -centre, 1 - centre, norm)
    return (centre + delta).clamp(0, 1).view_as(x)
