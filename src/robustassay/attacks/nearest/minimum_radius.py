"""The minimum radius at which an attack within a radius succeeds."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.gradient.pgd import PGD
from robustassay.errors import BadRequest
from robustassay.registry import name_of, register
from robustassay.target import DecisionAccess, GradientAccess, NoRowsLeft
from robustassay.threat import L0, L1, L2, LInf, Norm, per_row

HALVINGS: Final = 6
"""Bisections on the line from a clean image to an adversarial one, to 1/64 of its length."""

GROWTH: Final = 1.3
"""The growth of steps towards smaller radii: a trial that succeeds is cheap, one that fails costs all its steps."""

DEFAULT_ATTACK: Final = PGD()


@final
@register("attack", "minimum-radius")
@dataclass(frozen=True)
class MinimumRadius(Attack[DecisionAccess]):
    """Searches the minimum radius of another attack for each sample: `minimum-radius:attack=pgd(steps=10,restarts=2)`.

    The radius grows until the attack succeeds. A success is moved towards the clean image by bisection, and smaller
    radii are tried, in growing steps, until one fails. Bisection between the last failure and the best success then
    goes on until they differ by the relative `tolerance`. Every sample has its own radius, first that of the threat;
    all samples are tried together, up to `rounds` times.
    """

    info = AttackInfo(
        formula="least eps at which `attack` succeeds: grow it until success, then close in to `tolerance`",
    )
    access = DecisionAccess  # of the inner attack, once that is known
    norms = (LInf, L2, L1, L0)
    seeks_minimum = True

    attack: Attack[Any] = DEFAULT_ATTACK
    """The attack whose smallest radius is searched."""
    tolerance: float = 0.05
    """The search ends where the last failure and the best success differ by less than this part."""
    rounds: int = 20
    """Radii that are tried per sample, at most."""

    @property
    def sigma(self) -> float | None:
        """The step of the inner attack's queries, where it has one: a service of 8 bits must see it."""
        return getattr(self.attack, "sigma", None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attack.seeks_minimum:
            name = name_of("attack", type(self.attack))
            raise BadRequest(f"{name} finds the minimum radius by itself: run it as it is.")
        for fact in ("access", "norms", "can_target", "tries_without_gradients"):
            object.__setattr__(self, fact, getattr(self.attack, fact))

    def planned_passes(self, norm: Norm) -> int | None:
        """Return what the inner attack plans, in every round."""
        planned = self.attack.planned_passes(norm)
        return None if planned is None else self.rounds * planned

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Try, and move the radius, until both sides have met."""
        eps, failed_at = view.ball.eps, torch.zeros_like(view.ball.eps)
        stride, rounding = torch.full_like(eps, self.tolerance / GROWTH), view.ball.norm.slack(x0[0].numel())
        for _ in range(self.rounds):
            known = view.claimed_distance()
            farther = self._try(view.with_radius(eps), eps)
            self._draw_closer(view, view.claimed_distance() < known)
            found = view.claimed_distance().to(eps.dtype)
            failed = found > eps + rounding
            failed_at = torch.where(failed, eps, failed_at).minimum(found)
            view.mark_finished((found < torch.inf) & (failed_at >= (1 - 1.01 * self.tolerance) * found))
            stride = torch.where(failed, self.tolerance, GROWTH * stride).clamp(max=0.5)
            closer = torch.maximum((1 - stride) * found, (failed_at * found).sqrt())
            eps = torch.where(found < torch.inf, closer, farther)
            eps, failed_at, stride = view.drop_finished(eps, failed_at, stride)
        return view.ball.centre

    def _try(self, trial: DecisionAccess, eps: Tensor) -> Tensor:
        """Attack at these radii; return larger ones to try next, at which a linear margin would be zero."""
        attack, left = self.attack, trial.track_margins() if isinstance(trial, GradientAccess) else None
        with suppress(NoRowsLeft):
            for _ in range(attack.repeats):
                trial.decisions(attack(trial, trial.ball.centre))
                trial.drop_finished()
        if left is None:
            return 2 * eps
        reach = (1 + self.tolerance / 2) / (1 - left()).clamp(min=0.25)
        return reach.clamp(1 + self.tolerance, 4) * eps

    def _draw_closer(self, view: DecisionAccess, improved: Tensor) -> None:
        """Bisect between the clean image and the new points; the ledger keeps the closest success."""
        rows = view.subset(improved)
        clean, far = rows.ball.centre, rows.closest_claim()
        low, high = torch.zeros(len(far), device=far.device), torch.ones(len(far), device=far.device)
        for _ in range(HALVINGS if len(far) else 0):
            middle = (low + high) / 2
            reached = rows.goal.met(rows.decisions(clean + per_row(middle, far) * (far - clean)))
            low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
