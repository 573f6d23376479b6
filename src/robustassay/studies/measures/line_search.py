"""Images along a direction: how strong a step reaches a distance, and the first image that reaches the goal."""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.target import TargetModel
from robustassay.threat import Goal, labels_of
from robustassay.threat.rmsd import rmsd

POINTS_PER_QUERY: Final = 8
"""Points of a line that are queried together: a row that is finished wastes few of them."""


def along(x: Tensor, direction: Tensor, strength: float) -> Tensor:
    """Move images along directions of unit RMS, by a strength on the 0 to 255 scale, and clip to the pixel box."""
    return (x + strength / 255 * direction).clamp(0, 1)


def strength_for_rmsd(move: Callable[[float], Tensor], x: Tensor, wanted: float, high: float = 255.0) -> float:
    """Return the strength at which the images of `move` have an average RMSD of `wanted` (0 to 255).

    The average must rise with the strength, as it does along a line: clipping slows it down but never reverses it.
    """
    from scipy.optimize import brentq

    if wanted <= 0:
        raise BadRequest(f"An average RMSD to match must be above 0, not {wanted:g}.")

    def excess(strength: float) -> float:
        return float(rmsd(move(strength), x).mean()) - wanted

    if excess(high) < 0:
        most = wanted + excess(high)
        raise BadRequest(f"An average RMSD of {wanted:g} cannot be reached, {most:.3g} is the most: ask for less.")
    return float(brentq(excess, 0.0, high, xtol=1e-6, rtol=1e-6))


def minimal_rmsd(
    targets: Sequence[TargetModel], x: Tensor, direction: Tensor, goal: Goal, step: float = 0.1, end: float = 100.0
) -> Tensor:
    """Return the RMSD of the first image along each row's line that reaches the goal on all models; infinite if none.

    A search in small steps, not a bisection: the images that reach the goal may lie in several intervals (Liu et al.
    2017, section 3.2.2), and bisection finds any one of them.
    """
    found = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    rows = torch.arange(len(x), device=x.device)
    strengths = torch.arange(int(end / step + 1e-6) + 1, device=x.device) * step
    for some in torch.split(strengths, POINTS_PER_QUERY):
        if not len(rows):
            break
        points = torch.stack([along(x[rows], direction[rows], float(strength)) for strength in some], 1)
        reached = _reached_on_all(targets, points, goal.among(rows))
        hit, first = reached.any(1), reached.int().argmax(1)
        found[rows[hit]] = rmsd(points[hit, first[hit]], x[rows[hit]])
        rows = rows[~hit]
    return found


def reached_along(target: TargetModel, x: Tensor, direction: Tensor, goal: Goal, strengths: Sequence[float]) -> Tensor:
    """Say per row and strength whether the goal is reached, `[rows, strengths]`."""
    points = torch.stack([along(x, direction, strength) for strength in strengths], 1)
    return _reached_on_all([target], points, goal)


def _reached_on_all(targets: Sequence[TargetModel], points: Tensor, goal: Goal) -> Tensor:
    """Query each model only on the points that reached the goal on those before it."""
    reached = torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)
    for target in targets:
        predicted = torch.full(points.shape[:2], -1, device=points.device)
        predicted[reached] = labels_of(target.mean_logits(points[reached])) if reached.any() else predicted[reached]
        reached = reached & goal.met(predicted)
    return reached
