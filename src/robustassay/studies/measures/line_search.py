"""Images along a direction: how far they are, how strong an attack must be to go so far, and the first that counts."""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.target import TargetModel
from robustassay.threat import Goal, labels_of
from robustassay.threat.rmsd import rmsd

TOGETHER: Final = 8
"""Points of a ray that are asked about at once: a row that has its answer asks about few too many."""


def along(x: Tensor, direction: Tensor, strength: float) -> Tensor:
    """Move so far along directions of unit RMS, on the 0 to 255 scale, and clip to the pixel box."""
    return (x + strength / 255 * direction).clamp(0, 1)


def matched(make: Callable[[float], Tensor], x: Tensor, wanted: float, high: float = 255.0) -> float:
    """Return the strength at which what `make` returns lies `wanted` from x on average (RMSD, 0 to 255).

    The average must rise with the strength, as it does along a ray: clipping slows it down and never turns it.
    """
    from scipy.optimize import brentq

    if wanted <= 0:
        raise BadRequest(f"An average RMSD to match must be above 0, not {wanted:g}.")

    def missing(strength: float) -> float:
        return float(rmsd(make(strength), x).mean()) - wanted

    if missing(high) < 0:
        most = wanted + missing(high)
        raise BadRequest(f"An average RMSD of {wanted:g} cannot be reached, {most:.3g} is the most: ask for less.")
    return float(brentq(missing, 0.0, high, xtol=1e-6, rtol=1e-6))


def least_rmsd(
    networks: Sequence[TargetModel], x: Tensor, direction: Tensor, goal: Goal, step: float = 0.1, end: float = 100.0
) -> Tensor:
    """Return the RMSD of the first image along each row's ray that reaches the goal on all networks; infinite of none.

    A search in small steps and not by halves: the images that reach it may lie in several intervals (Liu et al. 2017,
    section 3.2.2), of which halving finds any one.
    """
    found = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    rows = torch.arange(len(x), device=x.device)
    strengths = torch.arange(int(end / step + 1e-6) + 1, device=x.device) * step
    for some in torch.split(strengths, TOGETHER):
        if not len(rows):
            break
        points = torch.stack([along(x[rows], direction[rows], float(strength)) for strength in some], 1)
        reached = _reached_on_all(networks, points, goal.among(rows))
        hit, first = reached.any(1), reached.int().argmax(1)
        found[rows[hit]] = rmsd(points[hit, first[hit]], x[rows[hit]])
        rows = rows[~hit]
    return found


def reached_along(network: TargetModel, x: Tensor, direction: Tensor, goal: Goal, strengths: Sequence[float]) -> Tensor:
    """Say for each row and strength whether the network gives what the goal wants, `[rows, strengths]`."""
    points = torch.stack([along(x, direction, strength) for strength in strengths], 1)
    return _reached_on_all([network], points, goal)


def _reached_on_all(networks: Sequence[TargetModel], points: Tensor, goal: Goal) -> Tensor:
    """Ask each network only about the points that reached the goal on those before it."""
    reached = torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)
    for network in networks:
        said = torch.full(points.shape[:2], -1, device=points.device)
        said[reached] = labels_of(network.mean_logits(points[reached])) if reached.any() else said[reached]
        reached = reached & goal.met(said)
    return reached
