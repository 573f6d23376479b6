"""Sign-OPT."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.boundary_search import AT_ONCE, at_distance, unit
from robustassay.attacks.common.oracle import Oracle
from robustassay.attacks.decision.opt import descend, first_direction, refresh
from robustassay.registry import register
from robustassay.target import DecisionAccess
from robustassay.threat import L2, per_row


@final
@register("attack", "sign-opt")
@dataclass(frozen=True)
class SignOPT(Attack[DecisionAccess]):
    """OPT with one query per probe: the sign of the change in distance (Cheng et al. 2020, arXiv:1909.10773).

    Whether a direction close by meets the boundary sooner is seen from one label, at the distance where the present
    one meets it. As in OPT, directions are followed along the box.
    """

    info = AttackInfo(
        papers=("1909.10773",),
        formula="t <- t - alpha * mean over u of sign(d(t + beta * u) - d(t)) * u, the sign by one query",
        reference="cmhcbb/attackbox",
    )
    access = DecisionAccess
    norms = (L2,)
    seeks_minimum = True

    queries: int = 20_000
    trials: int = 100
    """Random directions of which the one with the nearest boundary is the start."""
    probes: int = 200
    """Nearby directions that one gradient is estimated from."""
    alpha: float = 0.2
    """First length of a step between directions; it adapts."""
    beta: float = 0.001
    """Distance between a direction and the directions near it; it shrinks where steps become too short."""

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Estimate the gradient from signs, and descend."""
        oracle = Oracle.of(view, self.queries)
        direction, distance = first_direction(oracle, self.trials, self.beta)
        alpha, beta = torch.full_like(distance, self.alpha), torch.full_like(distance, self.beta)
        while len(direction):
            gradient = self._estimate_gradient(oracle, direction, distance, beta)
            direction, distance, alpha = descend(oracle, direction, distance, gradient, alpha, beta)
            alpha, beta = refresh(alpha, beta)
            direction, distance, alpha, beta = oracle.drop_finished(direction, distance, alpha, beta)
        return direction

    def _estimate_gradient(self, oracle: Oracle, direction: Tensor, distance: Tensor, beta: Tensor) -> Tensor:
        """Average random directions, each with the sign of the change in distance."""
        view, gradient = oracle.view, torch.zeros_like(direction)
        probed = 0
        while probed < self.probes:
            n = min(AT_ONCE, self.probes - probed)
            turn = unit(view.rng.normal(n, *direction.shape[1:]), 2)
            probe = direction[:, None] + per_row(beta[:, None].to(turn.dtype), turn) * turn
            nearer = oracle.reaches(at_distance(view, probe, distance[:, None].expand(-1, n)))
            gradient += (turn * per_row(1.0 - 2.0 * nearer, turn)).sum(1)
            probed += n
        return gradient / self.probes
