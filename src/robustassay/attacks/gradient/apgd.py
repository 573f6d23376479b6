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
"""The step size is halved where the loss rose in at most this fraction of the steps since the last checkpoint."""

STEP_WEIGHT: Final = 0.75
"""The paper's alpha: weight of the gradient step; the last move has weight 1 - alpha."""

CANDIDATES: Final = 16
"""Classes of the highest logits among which MALT ranks; their gradients are computed."""

VALUES_AT_ONCE: Final = 1 << 27
"""Values of gradients of classes that are held at once: half a gigabyte."""

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
    """Loss that is increased: ce (cross-entropy) or dlr (difference of logits ratio)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise BadRequest(f"APGD: loss must be one of {', '.join(LOSSES)}, not {self.loss!r}.")

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend from a random point at full radius."""
        return ascend(view, self.steps, LOSSES[self.loss])


@final
@register("attack", "apgd-t")
@dataclass(frozen=True)
class APGDT(Attack[GradientAccess]):
    """Auto-PGD towards several classes at once; any wrong label counts (Croce & Hein 2020, arXiv:2003.01690).

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
    """Order of the classes: by clean logits (logits), or by their distance if the model were linear (malt)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ("logits", "malt"):
            raise BadRequest(f"APGDT: order must be logits or malt, not {self.order!r}.")

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend towards all classes at once."""
        order = nearest_classes if self.order == "malt" else likely_classes

        def ascend_to(many: GradientAccess, target: Tensor) -> Tensor:
            return ascend(many, self.steps, dlr_towards, target)

        return towards_each(view, order(view, x0, self.targets), ascend_to)


def towards_each(
    view: GradientAccess, classes: Tensor, ascend_to: Callable[[GradientAccess, Tensor], Tensor]
) -> Tensor:
    """Ascend towards all columns of `classes` at once, with one copy of each row per column; query the last points.

    Copies fill the batches of the model; the first copy that succeeds ends the others of its row.
    """
    many = view.copied(classes.shape[1])
    with suppress(NoRowsLeft):
        many.decisions(ascend_to(many, classes.flatten()))
    view.drop_finished()  # the rows that finished meanwhile, so that iterations count alike in any batch
    return view.ball.centre


def likely_classes(view: GradientAccess, x0: Tensor, count: int) -> Tensor:
    """Rank the classes by clean logits."""
    return ranked_classes(view.scores(x0), view.goal, count)


def nearest_classes(view: GradientAccess, x0: Tensor, count: int) -> Tensor:
    """Rank the classes by their distance in a linear model at the clean image (MALT), among the likeliest ones.

    Each class takes a backward pass, and of many classes only those with high logits can be near.
    """
    classes = _candidates(view, x0)
    distance = x0.new_full((len(x0), view.classes), torch.inf, dtype=torch.float64)
    portion = max(1, VALUES_AT_ONCE // (classes.shape[1] * x0[0].numel()))
    number = torch.arange(len(x0), device=x0.device)
    for start in range(0, len(x0), portion):
        rows = slice(start, start + portion)
        part = view if portion >= len(x0) else view.subset((number >= start) & (number < start + portion))
        distance[rows] = distance[rows].scatter(1, classes[rows], _linear_distances(part, x0[rows], classes[rows]))
    return ranked_classes(-distance, view.goal, count)


def _candidates(view: GradientAccess, x0: Tensor) -> Tensor:
    """Return the classes `[rows, k]` that can be near: all where they are few, else the label and the likeliest."""
    if view.classes <= 1 + CANDIDATES:
        return torch.arange(view.classes, device=x0.device).expand(len(x0), -1)
    return torch.cat((view.goal.labels[:, None], ranked_classes(view.scores(x0), view.goal, CANDIDATES)), 1)


def _linear_distances(view: GradientAccess, x0: Tensor, classes: Tensor) -> Tensor:
    """Return how far each of these classes is in a linear model, for the label of each row zero."""
    jacobian, logits = view.jacobian(x0, classes)
    own = view.goal.labels[:, None]
    at_own = (classes == own).int().argmax(1)
    differences = (jacobian - jacobian[torch.arange(len(own)), at_own, None]).flatten(2)
    gap = logits.gather(1, own) - logits.gather(1, classes)
    return (gap / view.ball.norm.dual.size(differences).clamp(min=1e-12)).double()


def ascend(view: GradientAccess, steps: int, loss: Loss, *loss_arguments: Tensor) -> Tensor:
    """Run Auto-PGD once; `loss_arguments` are further arguments of the loss, with one entry per row."""
    arguments = list(loss_arguments)
    if view.ball.norm.name == "L1":
        return _ascend_l1(view, steps, loss, arguments)
    x_old = x = _at_full_radius(view)
    gradient, logits = view.gradient(x, loss, *arguments)
    value = loss(logits, view.goal, *arguments)
    best, best_gradient, best_value, last_best = x, gradient, value, value
    length = 2 * view.ball.eps
    rises, halved = torch.zeros_like(value), torch.ones_like(value, dtype=torch.bool)
    view.start_iterations()
    checkpoints = _checkpoints(steps)
    for k in range(1, steps):
        alpha = STEP_WEIGHT if k > 1 else 1.0
        ahead = view.ball.step(x, gradient, length)
        x_old, x = x, view.ball.project(x + alpha * (ahead - x) + (1 - alpha) * (x - x_old))
        gradient, logits = view.gradient(x, loss, *arguments)
        before, value = value, loss(logits, view.goal, *arguments)
        rises = rises + (value > before)
        better = value > best_value
        best, best_gradient = where_rows(better, x, best), where_rows(better, gradient, best_gradient)
        best_value = torch.where(better, value, best_value)
        if k in checkpoints:
            stuck = (rises <= RHO * checkpoints[k]) | (~halved & (best_value <= last_best))
            length = torch.where(stuck, length / 2, length)
            x, gradient = where_rows(stuck, best, x), where_rows(stuck, best_gradient, gradient)
            rises, halved, last_best = torch.zeros_like(rises), stuck, best_value
        points = (x, x_old, gradient, best, best_gradient)
        numbers = (value, best_value, last_best, length, rises, halved)
        x, x_old, gradient, best, best_gradient, *rest = view.drop_finished(*points, *numbers, *arguments)
        value, best_value, last_best, length, rises, halved, *arguments = rest
    ahead = view.ball.step(x, gradient, length)
    return view.ball.project(x + STEP_WEIGHT * (ahead - x) + (1 - STEP_WEIGHT) * (x - x_old))


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
    """Draw a start at full radius: uniform noise scaled to touch the cube, or a point of the sphere."""
    ball, shape = view.ball, view.ball.centre.shape[1:]
    noise = view.rng.normal(*shape) if ball.norm.name == "L2" else view.rng.uniform(*shape) * 2 - 1
    size = ball.norm.size(noise.flatten(1)).clamp(min=1e-12)
    return ball.project(ball.centre + noise * per_row((ball.eps / size).float(), noise))


def _ascend_l1(view: GradientAccess, steps: int, loss: Loss, arguments: list[Tensor]) -> Tensor:
    """Under L1, ascend in balls of 3, 2 and 1 times the radius, each time from the best point so far."""
    tracked = [view.track(values) for values in arguments]
    view.start_iterations()
    x = view.ball.project(view.ball.centre + view.rng.normal(*view.ball.centre.shape[1:]))
    for part, factor in ((0.3, 3.0), (0.3, 2.0), (0.4, 1.0)):
        x = _wider(view.ball, factor).project(x)
        x = _run_l1_stage(view, x, max(int(part * steps), 1), factor, loss, [values() for values in tracked])
    return x


def _run_l1_stage(
    view: GradientAccess, x: Tensor, steps: int, factor: float, loss: Loss, arguments: list[Tensor]
) -> Tensor:
    """Move the steepest share of the values; the share follows the number of values that the best point changed."""
    gradient, logits = view.gradient(x, loss, *arguments)
    best, best_gradient, best_value = x, gradient, loss(logits, view.goal, *arguments)
    values = x[0].numel()
    share = torch.full_like(best_value, 0.2)
    changed_before = torch.full_like(best_value, values)
    shrink = torch.ones_like(best_value)
    for k in range(1, steps + 1):
        ball = _wider(view.ball, factor)
        x = ball.project(x + per_row(shrink * ball.eps, x) * _steepest_share(x, gradient, share))
        gradient, logits = view.gradient(x, loss, *arguments)
        value = loss(logits, view.goal, *arguments)
        better = value > best_value
        best, best_gradient = where_rows(better, x, best), where_rows(better, gradient, best_gradient)
        best_value = torch.where(better, value, best_value)
        if k % max(int(0.04 * steps), 1) == 0:
            changed = (best != view.ball.centre).flatten(1).sum(1).to(share.dtype)
            sparser = changed < 0.95 * changed_before
            share, changed_before = changed / (1.5 * values), changed
            shrink = torch.where(sparser, torch.ones_like(shrink), shrink / 1.5).clamp(0.1, 1.0)
            x, gradient = where_rows(sparser, best, x), where_rows(sparser, best_gradient, gradient)
        points, numbers = (x, gradient, best, best_gradient), (best_value, share, changed_before, shrink)
        x, gradient, best, best_gradient, *rest = view.drop_finished(*points, *numbers, *arguments)
        best_value, share, changed_before, shrink, *arguments = rest
    return best


def _steepest_share(x: Tensor, gradient: Tensor, share: Tensor) -> Tensor:
    """Return the signs of the largest part of the gradient, scaled to unit L1 length.

    Values at 0 or 1 that a step along the gradient would move outside [0, 1] are left out; the authors' code
    includes them.
    """
    blocked = ((x <= 0) & (gradient < 0)) | ((x >= 1) & (gradient > 0))
    flat = gradient.masked_fill(blocked, 0).flatten(1)
    count = (share * flat.shape[1]).long().clamp(min=1)
    floor = flat.abs().sort(dim=1, descending=True).values.gather(1, count[:, None] - 1)
    signs = flat.sign() * (flat.abs() >= floor)
    return (signs / signs.abs().sum(1, keepdim=True).clamp(min=1)).view_as(gradient)


def _wider(ball: Ball, factor: float) -> Ball:
    return Ball(ball.norm, ball.centre, factor * ball.eps)
