"""The smallest radius at which an attack on a fixed budget succeeds."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.errors import BadRequest
from robustassay.registry import create, register
from robustassay.target import DecisionAccess, GradientAccess, NoRowsLeft
from robustassay.threat import L0, L1, L2, LInf, per_row

HALVINGS: Final = 6
"""Looks along the line from a clean image to an adversarial one: they tell 1/64 of it apart."""


GROWTH: Final = 1.3
"""Strides towards smaller radii grow by this: a trial that succeeds is cheap, one that fails costs all its steps."""


@final
@register("attack", "smallest")
@dataclass(frozen=True)
class MinimumRadius(Attack[DecisionAccess]):
    """Searches each sample's smallest radius for another attack, named in `attack` with ; between its settings.

    The radius grows until the attack succeeds. A success is drawn towards the clean image along a line, and smaller
    radii are tried, in growing strides, until one fails; success and failure then close in on each other until they
    differ by `tolerance`, as a part. Every sample has its own radius, and all are tried together, from that of the
    threat on, up to `rounds` times.
    """

    access = DecisionAccess  # of the inner attack, once that is known
    norms = (LInf, L2, L1, L0)
    seeks_minimum = True

    attack: str = "pgd"
    tolerance: float = 0.05
    rounds: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.inner
        if inner.seeks_minimum:
            raise BadRequest(f"{self.attack} finds the smallest radius by itself: run it as it is.")
        for name in ("access", "norms", "can_target", "tries_without_gradients"):
            object.__setattr__(self, name, getattr(inner, name))

    @property
    def inner(self) -> Attack[Any]:
        """The attack that is tried at each radius."""
        made: Attack[Any] = create("attack", self.attack.replace(";", ","))
        return made

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
        """Attack at these radii; return larger ones to try next, where the margin would be gone if it fell evenly."""
        attack, left = self.inner, trial.track_margins() if isinstance(trial, GradientAccess) else None
        with suppress(NoRowsLeft):
            for _ in range(getattr(attack, "restarts", 1)):
                trial.decisions(attack(trial, trial.ball.centre))
                trial.drop_finished()
        if left is None:
            return 2 * eps
        reach = (1 + self.tolerance / 2) / (1 - left()).clamp(min=0.25)
        return reach.clamp(1 + self.tolerance, 4) * eps

    def _draw_closer(self, view: DecisionAccess, improved: Tensor) -> None:
        """Halve the way from the clean image to the new points; the books keep the closest that still succeeds."""
        rows = view.subset(improved)
        clean, far = rows.ball.centre, rows.closest_claim()
        low, high = torch.zeros(len(far), device=far.device), torch.ones(len(far), device=far.device)
        for _ in range(HALVINGS if len(far) else 0):
            middle = (low + high) / 2
            reached = rows.goal.met(rows.decisions(clean + per_row(middle, far) * (far - clean)))
            low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
