"""OPT attack."""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.boundary_search import Path, at_distance, bisect, candidate, find_start, unit
from robustassay.attacks.common.oracle import Oracle
from robustassay.registry import register
from robustassay.target import DecisionAccess
from robustassay.threat import L2, per_row, where_rows

FINEST: Final = 1e-5
"""Directions closer than this are equal in float32."""
COARSE: Final = 1e-3
"""How finely, relative to it, a distance is known while a better one may still be found."""
TRIES: Final = 15
"""How often a step is doubled while that helps, or cut to a quarter until it does."""


@final
@register("attack", "opt")
@dataclass(frozen=True)
class OPT(Attack[DecisionAccess]):
    """Minimises the distance to the boundary over directions (Cheng et al. 2019, arXiv:1807.04457).

    The distance along a direction is found by bisection; finite differences over `probes` nearby directions give a
    gradient. Unlike in the paper, points are kept in the pixel box, and differences are relative to the distance, so
    that steps mean the same for near and far images.
    """

    info = AttackInfo(
        papers=("1807.04457",),
        formula="d(t): distance to the boundary along direction t, by bisection\n"
        "t <- t - alpha * mean over u of (d(t + beta * u) - d(t)) / beta * u",
        reference="cmhcbb/attackbox",
    )
    access = DecisionAccess
    norms = (L2,)
    seeks_minimum = True

    queries: int = 20_000
    trials: int = 100
    """Random directions of which the one with the nearest boundary is the start."""
    probes: int = 10
    """Nearby directions that one gradient is estimated from."""
    alpha: float = 0.2
    """First length of a step between directions; it adapts."""
    beta: float = 0.001
    """Distance between a direction and the directions near it; it shrinks where steps become too short."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Estimate how the distance changes with the direction, and descend."""
        oracle = Oracle.of(view, self.queries)
        direction, distance = first_direction(oracle, self.trials, self.beta)
        alpha, beta = torch.full_like(distance, self.alpha), torch.full_like(distance, self.beta)
        while len(direction):
            gradient, probe, nearest = self._estimate_gradient(oracle, direction, distance, beta)
            found, reached, alpha = descend(oracle, direction, distance, gradient, alpha, beta)
            probe_is_nearest = nearest < reached
            direction, distance = where_rows(probe_is_nearest, probe, found), torch.minimum(nearest, reached)
            alpha, beta = refresh(alpha, beta)
            direction, distance, alpha, beta = oracle.drop_finished(direction, distance, alpha, beta)
        return direction

    def _estimate_gradient(
        self, oracle: Oracle, direction: Tensor, distance: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the estimated gradient, and the nearest of the directions probed with its distance."""
        view, rows = oracle.view, torch.arange(len(direction), device=direction.device)
        turn = unit(view.rng.normal(self.probes, *direction.shape[1:]), 2)
        probe = unit(direction[:, None] + per_row(beta[:, None].to(turn.dtype), turn) * turn, 2)
        path = along(view, probe)
        here = distance[:, None].expand(-1, self.probes)
        nearer = oracle.reaches(path(here))
        low = here * torch.where(nearer, 0.99, 1.0)
        high = here * torch.where(nearer, 1.0, 1.01)  # a probe farther away counts as 1 % farther
        found = bisect(oracle, path, low, high, (distance * beta / 500)[:, None])
        rise = ((found / here - 1) / beta[:, None]).to(turn.dtype)
        gradient = (per_row(rise, turn) * turn).mean(1)
        nearest, at = torch.where(nearer, found, torch.inf).min(1)
        return gradient, probe[rows, at], nearest


def along(view: DecisionAccess, direction: Tensor) -> Path:
    """Return the path that follows directions from the clean images along the box."""

    def path(distance: Tensor) -> Tensor:
        return at_distance(view, direction, distance)

    return path


def first_direction(oracle: Oracle, trials: int, beta: float) -> tuple[Tensor, Tensor]:
    """Return the nearest of some directions that reach the goal; a direction is searched only if it is nearer."""
    x = find_start(oracle)
    view = oracle.view
    direction, distance = unit(x - view.ball.centre), view.ball.distance(x)
    distance = _nearest_along(oracle, direction, distance, COARSE)
    for attempt in range(1, trials):
        other = unit(candidate(view, attempt % 10) - view.ball.centre)
        better, closer = _is_nearer(oracle, other, distance)
        direction, distance = where_rows(better, other, direction), closer
        direction, distance = oracle.drop_finished(direction, distance)
    return direction, _refine(oracle, direction, distance, torch.full_like(distance, beta))


def descend(
    oracle: Oracle, direction: Tensor, distance: Tensor, gradient: Tensor, alpha: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Step against the gradient, doubling the step while that helps; where nothing helps, shorten the step."""
    best, nearest = direction, distance

    def attempt(rows: Tensor) -> Tensor:
        """Try the present step in some rows; return where it helped."""
        nonlocal best, nearest
        some = oracle.subset(rows)
        trial = unit(direction - per_row(alpha.to(gradient.dtype), gradient) * gradient)
        better = torch.zeros_like(rows)
        better[rows], closer = _is_nearer(some, trial[rows], nearest[rows])
        nearest = nearest.index_put((rows,), closer)
        best = where_rows(better, trial, best)
        return better

    rows = torch.ones(len(direction), dtype=torch.bool, device=direction.device)
    stuck = rows.clone()
    for _ in range(TRIES):
        rows = attempt(rows)
        stuck = stuck & ~rows
        if not rows.any():
            break
        alpha = torch.where(rows, alpha * 2, alpha)
    for _ in range(TRIES):
        stuck = stuck & (oracle.left > 0) & (alpha >= 1e-4)
        if not stuck.any():
            break
        alpha = torch.where(stuck, alpha / 4, alpha)
        stuck = stuck & ~attempt(stuck)
    return best, _refine(oracle, best, nearest, beta), alpha


def refresh(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Where steps have become too short, probe closer directions instead."""
    too_short = alpha < 1e-4
    return torch.where(too_short, 1.0, alpha), torch.where(too_short, (beta / 10).clamp(min=FINEST), beta)


def _is_nearer(oracle: Oracle, direction: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
    """Return which directions are nearer, by one query each, and their distances; the others keep the old distance."""
    target = distance * (1 - 1e-4)
    better = oracle.reaches(at_distance(oracle.view, direction, target))
    if better.any():
        some = oracle.subset(better)
        target[better] = _nearest_along(some, direction[better], target[better], COARSE)
    return better, torch.where(better, target, distance)


def _nearest_along(oracle: Oracle, direction: Tensor, distance: Tensor, tolerance: float) -> Tensor:
    """Approach in steps that double while the goal is reached, then bisect the last one."""
    path = along(oracle.view, direction)
    low, high = distance.clone(), distance.clone()
    step, reaching = 0.01, torch.ones(len(distance), dtype=torch.bool, device=distance.device)
    while reaching.any():
        low = torch.where(reaching, high * (1 - min(step, 1.0)), low)
        hit = torch.zeros_like(reaching)
        hit[reaching] = oracle.subset(reaching).reaches(path(low)[reaching])
        high = torch.where(hit, low, high)
        reaching, step = hit & (high > 0), step * 2
    return bisect(oracle, path, low, high, tolerance * high)


def _refine(oracle: Oracle, direction: Tensor, distance: Tensor, beta: Tensor) -> Tensor:
    """Bring the distance to the precision that probes at angles of beta need."""
    fine = distance * beta / 500
    return bisect(oracle, along(oracle.view, direction), distance * (1 - 2 * COARSE), distance, fine)
