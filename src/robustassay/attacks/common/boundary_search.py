"""Starting points of decision-based attacks, and searches along a path for the decision boundary."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from robustassay.attacks.common.oracle import Oracle
from robustassay.target import DecisionAccess
from robustassay.threat import LInf, Targeted, per_row

AT_ONCE: Final = 25
"""Probes per row in one call: enough to fill a batch, few enough for memory. A row that needs more calls again, so that
rows which need different numbers draw the same random numbers."""

NOISE: Final = 3
DATA_IMAGES: Final = 25
ATTEMPTS: Final = 128
"""Starting points tried before a row is given up: noise, then images of the data, then noise on few values."""

OTHER_STARTS: Final = 5
"""Images of the data that may replace a start, one query each: on a robust model, noise leads far away."""

Path = Callable[[Tensor], Tensor]
"""From one number per row, or several, to the images at these places of the path."""


# ---------------------------------------------------------------- where to start


def find_start(oracle: Oracle) -> Tensor:
    """Find one image per row that reaches the goal; rows without one are finished."""
    x = oracle.view.ball.centre.clone()
    found = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for attempt in range(ATTEMPTS):
        searching = ~found & (oracle.left > 0)
        if not searching.any():
            break
        some = oracle.subset(searching)
        points = candidate(some.view, attempt)
        hit = some.reaches(points)
        rows = searching.nonzero().squeeze(1)[hit]
        x[rows], found[rows] = points[hit], True
    oracle.view.mark_finished(~found)
    (x,) = oracle.drop_finished(x)
    return x


def start_on_boundary(oracle: Oracle, tolerance: Tensor | float) -> Tensor:
    """Find a start, move it to the boundary, and replace it by an image of the data where that is closer."""
    x = onto_boundary(oracle, find_start(oracle), tolerance)
    view = oracle.view
    for _ in range(OTHER_STARTS if len(x) else 0):
        other, distance = view.start_images(), view.ball.distance(x)
        part = (0.95 * distance / view.ball.distance(other).clamp(min=1e-12)).clamp(max=1)
        other = towards_clean(view, other)(part)
        closer = oracle.reaches(other)
        if closer.any():
            x[closer] = onto_boundary(oracle.subset(closer), other[closer], tolerance)
        (x,) = oracle.drop_finished(x)
    return x


def candidate(view: DecisionAccess, attempt: int) -> Tensor:
    """Draw one image per row that may reach the goal.

    Untargeted rows try uniform noise first. Then all rows try images of the data, which targeted goals need. After that
    come random values on ever fewer pixels: they reach corners of the box that full noise does not.
    """
    centre = view.ball.centre
    if isinstance(view.goal, Targeted):
        attempt += NOISE
    if attempt < NOISE:
        return view.rng.uniform(*centre.shape[1:])
    if attempt < NOISE + DATA_IMAGES:
        return view.start_images()
    share = 2.0 ** -(attempt % 7)
    chance, noise = view.rng.uniform(*centre.shape[1:]), view.rng.uniform(*centre.shape[1:])
    least = per_row(chance.flatten(1).amin(1), chance)  # one value changes at least
    return torch.where(chance <= least.clamp(min=share), noise, centre)


# ---------------------------------------------------------------- paths, and searches along them


def bisect(oracle: Oracle, path: Path, low: Tensor, high: Tensor, tolerance: Tensor | float) -> Tensor:
    """Bisect for the place between `low` and `high` where a path stops reaching the goal; return the upper ends.

    There is one number per row, or several that are searched side by side. Each row stops once its brackets are narrow.
    """
    while True:
        wide = high - low > tolerance
        wide = (wide if wide.dim() == 1 else wide.any(1)) & (oracle.left > 0)
        if not wide.any():
            return high
        middle = (low + high) / 2
        hit = torch.zeros_like(high, dtype=torch.bool)
        hit[wide] = oracle.subset(wide).reaches(path(middle)[wide])
        missed = ~hit & per_row(wide, hit)
        high, low = torch.where(hit, middle, high), torch.where(missed, middle, low)


def towards_clean(view: DecisionAccess, x: Tensor) -> Path:
    """Return the path from the clean images, at 0, to these, at 1: a line, or under Linf the perturbation clipped."""
    centre, delta, size = view.ball.centre, x - view.ball.centre, view.ball.distance(x)

    def path(t: Tensor) -> Tensor:
        if isinstance(view.ball.norm, LInf):
            limit = per_row((t * size).to(x.dtype), x)
            return centre + torch.minimum(torch.maximum(delta, -limit), limit)
        return centre + per_row(t.to(x.dtype), x) * delta

    return path


def onto_boundary(oracle: Oracle, x: Tensor, tolerance: Tensor | float) -> Tensor:
    """Move points that reach the goal along their path to the boundary; `tolerance` is a part of its length."""
    path = towards_clean(oracle.view, x)
    high = torch.ones(len(x), dtype=torch.float64, device=x.device)
    return path(bisect(oracle, path, torch.zeros_like(high), high, tolerance)).clamp(0, 1)


def at_distance(view: DecisionAccess, direction: Tensor, size: Tensor) -> Tensor:
    """Return the points at these L2 distances where a direction from the clean image leads inside the box.

    A value that reaches 0 or 1 stays there while the others go on, so the shortest way to a plane is such a path.
    """
    lead = 1 if direction.dim() == view.ball.centre.dim() else 2
    centre = view.ball.centre.flatten(1)
    if lead == 2:
        centre = centre[:, None]
    flat = direction.flatten(lead)
    largest = flat.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
    far = flat / largest * (1e3 * size).to(flat.dtype)[..., None]  # the projection shortens and never lengthens
    return (centre + view.ball.norm.project(far, -centre, 1 - centre, size)).clamp(0, 1).view_as(direction)


def unit(x: Tensor, lead: int = 1) -> Tensor:
    """Scale to Euclidean length one; zero stays zero."""
    size = x.flatten(lead).square().sum(-1).sqrt().clamp(min=1e-12)
    return x / size.view(*size.shape, *(1,) * (x.dim() - lead))
