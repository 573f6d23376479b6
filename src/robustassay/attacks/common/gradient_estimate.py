"""Gradients estimated from scores: query along random directions, and average them, weighted by what each gained.

Every point is clipped to the pixel box before it is sent. A value at 0 or 1 then moves half as often, so its part of
the estimate is halved, but keeps its sign. Directions are drawn and queried in blocks of a fixed number, which bounds
memory; sums are taken in float64 and rounded, so that no row depends on how many others are queried with it.
"""

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from robustassay.target import ScoreAccess
from robustassay.threat import per_row

BLOCK: Final = 16
"""Directions per row that are queried together: full batches, and memory that is reused."""

Draw = Callable[[int], Tensor]
"""From a count to that many directions per row, `[rows, count, *image]`."""

Derivative = Callable[[Tensor], Tensor]
"""From directions `[rows, count, *image]` to the derivative of the loss along each, `[rows, count]`."""


def blocks(count: int) -> Iterator[int]:
    """Split a number of directions into blocks."""
    for start in range(0, count, BLOCK):
        yield min(BLOCK, count - start)


def attack_loss(view: ScoreAccess, x: Tensor) -> Tensor:
    """Return the loss to maximise: minus the logit margin: its gradient does not vanish at high confidence."""
    return -view.goal.margin(view.scores(x))


def central_difference(view: ScoreAccess, x: Tensor, sigma: float) -> Derivative:
    """Query both sides of x: two queries per direction."""

    def derivative(directions: Tensor) -> Tensor:
        both = sigma * torch.cat((directions, -directions), 1)
        ahead, behind = attack_loss(view, (x[:, None] + both).clamp(0, 1)).chunk(2, 1)
        return (ahead - behind) / (2 * sigma)

    return derivative


def forward_difference(view: ScoreAccess, x: Tensor, loss: Tensor, sigma: float) -> Derivative:
    """Query ahead of x, where the loss is known: one query per direction."""

    def derivative(directions: Tensor) -> Tensor:
        ahead = attack_loss(view, (x[:, None] + sigma * directions).clamp(0, 1))
        return (ahead - loss[:, None]) / sigma

    return derivative


def estimate_gradient(derivative: Derivative, draw: Draw, count: int) -> Tensor:
    """Average directions, each weighted by the derivative along it.

    The expectation is C g, for the gradient g and the directions' second moment C: the gradient itself where C = I.
    """
    total: Tensor | float = 0.0
    for n in blocks(count):
        directions = draw(n)
        total = total + (per_row(derivative(directions), directions) * directions).sum(1, dtype=torch.float64)
    assert isinstance(total, Tensor)
    return (total / count).float()


def normal_directions(view: ScoreAccess, x: Tensor) -> Draw:
    """Draw directions of independent normal values."""
    rng, shape = view.rng, x.shape[1:]
    return lambda n: rng.normal(n, *shape)


def sign_directions(view: ScoreAccess, x: Tensor) -> Draw:
    """Draw directions of random signs."""
    rng, shape = view.rng, x.shape[1:]
    return lambda n: rng.rademacher(n, *shape)


def sphere_directions(view: ScoreAccess, x: Tensor) -> Draw:
    """Draw directions uniformly, all of mean square one."""
    draw = normal_directions(view, x)
    return lambda n: on_sphere(draw(n))


def on_sphere(directions: Tensor) -> Tensor:
    """Scale directions `[rows, count, *image]` so that the mean of their squares is one."""
    mean = directions.flatten(2).square().mean(-1, dtype=torch.float64)
    return directions / per_row(mean.sqrt().clamp(min=1e-30).float(), directions)
