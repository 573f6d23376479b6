"""Auto-PGD: projected gradient ascent whose step size adapts to each sample."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import GradientAccess, Loss, NoRowsLeft
from robustassay.threat import L1, L2, Ball, LInf, per_row, where_rows
from robustassay.threat.losses import dlr, dlr_towards, ranked_classes

RHO: Final = 0.75
MOMENTUM: Final = 0.75
LOSSES: Final[dict[str, Loss]] = {"ce": lambda logits, goal: goal.loss(logits), "dlr": dlr}


@final
@register("attack", "apgd")
@dataclass(frozen=True)
class APGD(Attack[GradientAccess]):
    """Auto-PGD on the cross-entropy or the DLR loss (Croce & Hein 2020, arXiv:2003.01690; L1: arXiv:2103.01208)."""

    info = AttackInfo(
        papers=("2003.01690", "2103.01208"),
        formula="ahead = P(x + step(g(x), a))\n"
        "x <- P(x + 0.75 * (ahead - x) + 0.25 * (x - x_before))\n"
        "a = 2 * eps at first; at checkpoints, where the loss rose too rarely, a is halved and the best point taken up",
        reference="fra31/auto-attack",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 100
    restarts: int = 1
    loss: str = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise BadRequest(f"APGD: loss must be one of {', '.join(LOSSES)}, not {self.loss!r}.")

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Climb from a random point at full radius."""
        return ascend(view, self.steps, LOSSES[self.loss])


@final
@register("attack", "apgd-t")
@dataclass(frozen=True)
class APGDT(Attack[GradientAccess]):
    """Auto-PGD towards several classes in turn; any wrong label counts (Croce & Hein 2020, arXiv:2003.01690).

    `order` ranks the classes by clean logits, or by their distance if the model were linear, "malt"
    (Melamed et al. 2024, arXiv:2407.02240).
    """

    info = AttackInfo(
        papers=("2003.01690", "2407.02240"),
        formula="apgd on (z_t - z_y) / (z_1st - (z_3rd + z_4th) / 2), for each of `targets` classes t",
        reference="fra31/auto-attack",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 100
    targets: int = 9
    order: str = "logits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ("logits", "malt"):
            raise BadRequest(f"APGDT: order must be logits or malt, not {self.order!r}.")

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Climb towards all classes at once."""
        order = nearest_classes if self.order == "malt" else likely_classes

        def climb(many: GradientAccess, target: Tensor) -> Tensor:
            return ascend(many, self.steps, dlr_towards, target)

        return towards_each(view, order(view, x0, self.targets), climb)


def towards_each(view: GradientAccess, classes: Tensor, climb: Callable[[GradientAccess, Tensor], Tensor]) -> Tensor:
    """Climb towards all columns of `classes` at once, a copy of each row for each, and look at the last points.

    Together, few rows fill a call to the model; the first climb that succeeds ends those of its row.
    """
    many = view.copied(classes.shape[1])
    with suppress(NoRowsLeft):
        many.decisions(climb(many, classes.flatten()))
    view.drop_finished()  # whoever fell meanwhile, be it all: a row alone is booked like a row in company
    return view.ball.centre


def likely_classes(view: GradientAccess, x0: Tensor, count: int) -> Tensor:
    """Rank the classes by clean logits."""
    return ranked_classes(view.scores(x0), view.goal, count)


def nearest_classes(view: GradientAccess, x0: Tensor, count: int) -> Tensor:
    """Rank the classes by how far each would be if the model were linear around the clean image."""
    jacobian, logits = view.jacobian(x0)
    own = view.goal.labels[:, None]
    slopes = (jacobian - jacobian[torch.arange(len(own)), own.squeeze(1), None]).flatten(2)
    gap = logits.gather(1, own) - logits
    distance = gap / view.ball.norm.dual.size(slopes).clamp(min=1e-12)
    return ranked_classes(-distance, view.goal, count)


def ascend(view: GradientAccess, steps: int, loss: Loss, *known: Tensor) -> Tensor:
    """Run Auto-PGD once on the rows in flight; `known` is what the loss must know of each row."""
    told = list(known)
    if view.ball.norm.name == "L1":
        return _ascend_sparsely(view, steps, loss, told)
    x_old = x = _at_full_radius(view)
    gradient, logits = view.gradient(x, loss, *told)
    height = loss(logits, view.goal, *told)
    best, best_gradient, best_height, last_best = x, gradient, height, height
    length = 2 * view.ball.eps
    rises, halved = torch.zeros_like(height), torch.ones_like(height, dtype=torch.bool)
    view.start_iterations()
    checkpoints = _checkpoints(steps)
    for k in range(1, steps):
        pull = MOMENTUM if k > 1 else 1.0
        ahead = view.ball.step(x, gradient, length)
        x_old, x = x, view.ball.project(x + pull * (ahead - x) + (1 - pull) * (x - x_old))
        gradient, logits = view.gradient(x, loss, *told)
        before, height = height, loss(logits, view.goal, *told)
        rises = rises + (height > before)
        better = height > best_height
        best, best_gradient = where_rows(better, x, best), where_rows(better, gradient, best_gradient)
        best_height = torch.where(better, height, best_height)
        if k in checkpoints:
            stuck = (rises <= RHO * checkpoints[k]) | (~halved & (best_height <= last_best))
            length = torch.where(stuck, length / 2, length)
            x, gradient = where_rows(stuck, best, x), where_rows(stuck, best_gradient, gradient)
            rises, halved, last_best = torch.zeros_like(rises), stuck, best_height
        points = (x, x_old, gradient, best, best_gradient)
        numbers = (height, best_height, last_best, length, rises, halved)
        x, x_old, gradient, best, best_gradient, *rest = view.drop_finished(*points, *numbers, *told)
        height, best_height, last_best, length, rises, halved, *told = rest
    ahead = view.ball.step(x, gradient, length)
    return view.ball.project(x + MOMENTUM * (ahead - x) + (1 - MOMENTUM) * (x - x_old))


def _checkpoints(steps: int) -> dict[int, int]:
    """Return the iterations at which steps may shrink, with the length of the window that ends there."""
    found, at = {}, 0
    window, shrink, least = (max(int(part * steps), 1) for part in (0.22, 0.03, 0.06))
    while at + window < steps:
        at += window
        found[at] = window
        window = max(window - shrink, least)
    return found


def _at_full_radius(view: GradientAccess) -> Tensor:
    """Draw a start as far out as the ball allows: uniform noise stretched to touch the cube, or the sphere."""
    ball, shape = view.ball, view.ball.centre.shape[1:]
    noise = view.rng.normal(*shape) if ball.norm.name == "L2" else view.rng.uniform(*shape) * 2 - 1
    size = ball.norm.size(noise.flatten(1)).clamp(min=1e-12)
    return ball.project(ball.centre + noise * per_row((ball.eps / size).float(), noise))


def _ascend_sparsely(view: GradientAccess, steps: int, loss: Loss, told: list[Tensor]) -> Tensor:
    """Under L1, climb in balls of 3, 2 and 1 times the radius, each time from the best point so far."""
    known = [view.track(values) for values in told]
    view.start_iterations()
    x = view.ball.project(view.ball.centre + view.rng.normal(*view.ball.centre.shape[1:]))
    for part, factor in ((0.3, 3.0), (0.3, 2.0), (0.4, 1.0)):
        x = _wider(view.ball, factor).project(x)
        x = _climb_sparsely(view, x, max(int(part * steps), 1), factor, loss, [values() for values in known])
    return x


def _climb_sparsely(
    view: GradientAccess, x: Tensor, steps: int, factor: float, loss: Loss, told: list[Tensor]
) -> Tensor:
    """Move the steepest share of the values; the share follows how many values the best point needed."""
    gradient, logits = view.gradient(x, loss, *told)
    best, best_gradient, best_height = x, gradient, loss(logits, view.goal, *told)
    values = x[0].numel()
    share = torch.full_like(best_height, 0.2)
    changed_before = torch.full_like(best_height, values)
    shrink = torch.ones_like(best_height)
    for k in range(1, steps + 1):
        ball = _wider(view.ball, factor)
        x = ball.project(x + per_row(shrink * ball.eps, x) * _steepest_share(x, gradient, share))
        gradient, logits = view.gradient(x, loss, *told)
        height = loss(logits, view.goal, *told)
        better = height > best_height
        best, best_gradient = where_rows(better, x, best), where_rows(better, gradient, best_gradient)
        best_height = torch.where(better, height, best_height)
        if k % max(int(0.04 * steps), 1) == 0:
            changed = (best != view.ball.centre).flatten(1).sum(1).to(share.dtype)
            sparser = changed < 0.95 * changed_before
            share, changed_before = changed / (1.5 * values), changed
            shrink = torch.where(sparser, torch.ones_like(shrink), shrink / 1.5).clamp(0.1, 1.0)
            x, gradient = where_rows(sparser, best, x), where_rows(sparser, best_gradient, gradient)
        points, numbers = (x, gradient, best, best_gradient), (best_height, share, changed_before, shrink)
        x, gradient, best, best_gradient, *rest = view.drop_finished(*points, *numbers, *told)
        best_height, share, changed_before, shrink, *told = rest
    return best


def _steepest_share(x: Tensor, gradient: Tensor, share: Tensor) -> Tensor:
    """Return the signs of the largest part of the gradient, scaled to unit L1 length.

    Values at a wall of the box that they are pushed against are passed over; the authors' code spends steps on them.
    """
    barred = ((x <= 0) & (gradient < 0)) | ((x >= 1) & (gradient > 0))
    flat = gradient.masked_fill(barred, 0).flatten(1)
    count = (share * flat.shape[1]).long().clamp(min=1)
    floor = flat.abs().sort(dim=1, descending=True).values.gather(1, count[:, None] - 1)
    signs = flat.sign() * (flat.abs() >= floor)
    return (signs / signs.abs().sum(1, keepdim=True).clamp(min=1)).view_as(gradient)


def _wider(ball: Ball, factor: float) -> Ball:
    return Ball(ball.norm, ball.centre, factor * ball.eps)
