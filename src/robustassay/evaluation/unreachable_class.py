"""Finds a class that comes second almost everywhere and wins nowhere.

Attacks that reduce the smallest margin then move towards that class in vain.
"""

from typing import Final

import torch
from torch import Tensor

from robustassay.target import TargetModel
from robustassay.threat import Targeted
from robustassay.threat.losses import logit_margin

LEAST_IMAGES: Final = 8
LEAST_CLASSES: Final = 3
OFTEN: Final = 0.6
"""Fraction of the images on which a class must come second to be tried."""

LEAST_WINNERS: Final = 2
"""Classes that it must come second to: a model that predicts one class everywhere has a second one by chance."""

STEPS: Final = 40
SIZES: Final = (1 / 32, 1 / 256)
"""Steps towards the class, from each image tried: large ones together cross the whole range of pixel values, and small
ones follow a surface over which large ones jump."""


def find_unreachable_class(target: TargetModel, x: Tensor, logits: Tensor) -> int | None:
    """Return a class that comes second on most images and is not predicted on any path towards it."""
    if len(x) < LEAST_IMAGES or logits.shape[1] < LEAST_CLASSES:
        return None
    first, second = logits.topk(2, dim=1).indices.unbind(1)
    candidate = int(second.mode().values)
    is_second = second == candidate
    if is_second.float().mean() < OFTEN or (first == candidate).any() or _distinct(first[is_second]) < LEAST_WINNERS:
        return None
    tried = x[is_second][:LEAST_IMAGES]
    return None if any(_reaches(target, tried, candidate, size) for size in SIZES) else candidate


def _distinct(labels: Tensor) -> int:
    return len(set(labels.tolist()))


def _reaches(target: TargetModel, x: Tensor, label: int, size: float) -> bool:
    """Raise the logit of a class against the others by sign steps, without a radius."""
    goal = Targeted(torch.full((len(x),), label, device=x.device))
    for _ in range(STEPS):
        gradient, logits = target.gradient(x, logit_margin, goal)
        if goal.reached(logits).any():
            return True
        x = (x + size * gradient.sign()).clamp(0, 1)
    return bool(goal.reached(target.mean_logits(x)).any())
