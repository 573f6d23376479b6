"""Fast adaptive boundary attack."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.gradient.apgd import likely_classes, towards_each
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, Ball, Goal, LInf, Targeted, per_row
from robustassay.threat.hyperplane import onto_hyperplane

Plane = Callable[[GradientAccess, Tensor], tuple[Tensor, Tensor]]
"""From points to the boundary of the model linearised there: its flat normal, and how far the points are beyond it."""


@final
@register("attack", "fab")
@dataclass(frozen=True)
class FAB(Attack[GradientAccess]):
    """Moves along the decision boundary towards the clean image (Croce & Hein 2020, arXiv:1907.02044).

    With the aim "classes" (FAB-T, the default), an untargeted goal is attacked through each of the `targets` classes
    with the highest clean logits, for `steps` steps each; any wrong label counts. With the aim "any", every step goes
    to the class with the nearest boundary, which takes the gradients of all classes. A targeted goal has one class,
    which must exceed all others. A step makes two queries: gradients, and the label of the new point. The search is
    repeated from `starts` points; all but the first are random.
    """

    info = AttackInfo(
        papers=("1907.02044",),
        formula="d, d0: shortest steps from x and from x0 onto the tangent of the boundary at x, inside the box\n"
        "x <- (1 - alpha) * (x + eta * d) + alpha * (x0 + eta * d0), alpha = min(|d| / (|d| + |d0|), alpha_max)\n"
        "x <- x0 + beta * (x - x0) wherever the goal is reached",
        reference="fra31/auto-attack, adv-lib",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)
    seeks_minimum = True

    steps: int = 100
    targets: int = 9
    aim: str = "classes"
    """classes (one wrong class after the other) or any (the nearest boundary of all classes)."""
    starts: int = 1
    """Number of starts; all but the first are random."""
    alpha_max: float = 0.1
    """Largest weight of the clean image in a step."""
    eta: float = 1.05
    """Factor by which a step goes beyond the boundary of the linearised model."""
    beta: float = 0.9
    """After a success, the search goes on at this part of the way from the clean image."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aim not in ("classes", "any"):
            raise BadRequest(f"FAB: aim must be classes or any, not {self.aim!r}.")

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Move along the boundaries of all classes at once, or along the nearest."""
        if self.aim == "any" and not isinstance(view.goal, Targeted):
            return self._search(view, _nearest_plane)
        return towards_each(view, likely_classes(view, x0, self.targets), self._search_towards)

    def _search_towards(self, view: GradientAccess, aim: Tensor) -> Tensor:
        return self._search(view, partial(_plane_towards, view.track(aim)))

    def _search(self, view: GradientAccess, plane: Plane) -> Tensor:
        """Step onto the boundary's tangent; from beyond the boundary, step back towards the clean image."""
        x = view.ball.centre
        for start in range(self.starts):
            x = _random_start(view) if start else view.ball.centre
            for _ in range(self.steps):
                x = self._step(view, x, *plane(view, x))
                reached = per_row(view.goal.reached(view.scores(x)), x)
                back = view.ball.centre + self.beta * (x - view.ball.centre)
                (x,) = view.drop_finished(torch.where(reached, back, x))
        return x

    def _step(self, view: GradientAccess, x: Tensor, w: Tensor, lead: Tensor) -> Tensor:
        """Move to the tangent plane of the boundary, and a little beyond, biased towards the clean image."""
        here, clean = x.flatten(1).double(), view.ball.centre.flatten(1).double()
        from_here = onto_hyperplane(view.ball.norm, w, -lead, -here, 1 - here)
        from_clean = onto_hyperplane(view.ball.norm, w, (w * (here - clean)).sum(1) - lead, -clean, 1 - clean)
        near, far = (view.ball.norm.size(d).clamp(min=1e-8) for d in (from_here, from_clean))
        alpha = (near / (near + far)).clamp(max=self.alpha_max)[:, None]
        moved = (1 - alpha) * (here + self.eta * from_here) + alpha * (clean + self.eta * from_clean)
        return moved.clamp(0, 1).to(x.dtype).view_as(x)


def _plane_towards(aims: Callable[[], Tensor], view: GradientAccess, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the boundary of one class."""
    aim = aims()
    gradient, logits = view.gradient(x, _lead, aim)
    return gradient.flatten(1).double(), _lead(logits, view.goal, aim).double()


def _nearest_plane(view: GradientAccess, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the boundary that is nearest of all."""
    jacobian, logits = view.jacobian(x)
    row, own = torch.arange(len(x), device=x.device), view.goal.labels
    normals = (jacobian - jacobian[row, own, None]).flatten(2).double()
    leads = (logits - logits[row, own, None]).double()
    distance = leads.abs() / view.ball.norm.dual.size(normals).clamp(min=1e-12)
    nearest = distance.scatter(1, own[:, None], torch.inf).argmin(1)
    return normals[row, nearest], leads[row, nearest]


def _random_start(view: GradientAccess) -> Tensor:
    """Draw a start from the inner half of the ball, or of the ball of the closest success."""
    radius = torch.minimum(view.claimed_distance(), view.ball.eps.double()) / 2
    return Ball(view.ball.norm, view.ball.centre, radius.float()).sample(view.rng)


def _lead(logits: Tensor, goal: Goal, aim: Tensor) -> Tensor:
    """Return the logit of the class aimed at, less that of the label, or of the best other class if targeted."""
    if isinstance(goal, Targeted):
        return -goal.margin(logits)
    return (logits.gather(1, aim[:, None]) - logits.gather(1, goal.labels[:, None])).squeeze(1)
