"""What the decision-based attacks share: a purse of queries, a point to start from, and searches along a path."""

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor

from robustassay.target import DecisionAccess
from robustassay.threat import LInf, Targeted, per_row

AT_ONCE: Final = 25
"""Probes a row sends in one call: enough to fill a model, few enough for memory. A row that wants more calls again,
so that rows which want different numbers of them still draw the same ones."""

NOISE: Final = 3
PHOTOS: Final = 25
ATTEMPTS: Final = 128
"""Points tried as a start before a row is given up: noise, then images of the data, then noise on few values."""

RIVALS: Final = 5
"""Images of the data that may replace a start, each for one query: near a robust model noise ends far away."""

Path = Callable[[Tensor], Tensor]
"""From one number a row, or many, to the images that lie there."""


@final
class Oracle:
    """Says whether points reach the goal, and lets no row ask more than its purse allows.

    The purse is what the evaluation's budget leaves, or the attack's own plan where there is none; a row whose
    purse is empty leaves at the next `drop_finished`. Points that cannot be paid for are not sent; their answer is no.
    """

    def __init__(self, view: DecisionAccess, purse: Tensor, at: Tensor) -> None:
        self.view = view
        self._purse = purse  # shared with the oracles of some rows, so that what these spend is gone
        self._at = at

    @classmethod
    def of(cls, view: DecisionAccess, queries: int) -> "Oracle":
        """Open a purse for every row in flight."""
        labels, left = view.goal.labels, view.queries_left()
        purse = torch.full_like(labels, queries) if left is None else left.clone()
        return cls(view, purse, torch.arange(len(labels), device=labels.device))

    @property
    def left(self) -> Tensor:
        """Count what each row may still ask."""
        return self._purse[self._at]

    def reaches(self, x: Tensor) -> Tensor:
        """Clip points to the box and say which of them, one a row or many, reach the goal."""
        points = x.clamp(0, 1)
        points = points if (many := x.dim() > self.view.ball.centre.dim()) else points[:, None]
        counts = self.left.clamp(max=points.shape[1])
        answers = torch.zeros(points.shape[:2], dtype=torch.bool, device=x.device)
        for count in set(counts.tolist()):
            rows = counts == count  # purses differ in the last call of a row's life at most
            if bool(rows.all()) and count == points.shape[1]:
                answers = self.view.goal.met(self.view.decisions(points))
            elif count:
                box = self.view.subset(rows)
                answers[rows, :count] = box.goal.met(box.decisions(points[rows, :count]))
        self._purse[self._at] -= counts
        return answers if many else answers[:, 0]

    def drop_finished(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """End an iteration as a box does, and let rows go that cannot ask again."""
        self.view.mark_finished(self.left == 0)
        *kept, self._at = self.view.drop_finished(*tensors, self._at)
        return tuple(kept)

    def subset(self, mask: Tensor) -> "Oracle":
        """Return the oracle of some rows, for an inner loop that lets the others rest."""
        return Oracle(self.view.subset(mask), self._purse, self._at[mask])


# ---------------------------------------------------------------- where to start


def find_start(oracle: Oracle) -> Tensor:
    """Find an image a row that reaches the goal; rows that have none are let go."""
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
    """Find a start, bring it to the boundary, and change to an image of the data where that leads there sooner."""
    x = onto_boundary(oracle, find_start(oracle), tolerance)
    view = oracle.view
    for _ in range(RIVALS if len(x) else 0):
        rival, distance = view.start_images(), view.ball.distance(x)
        part = (0.95 * distance / view.ball.distance(rival).clamp(min=1e-12)).clamp(max=1)
        rival = towards_clean(view, rival)(part)
        sooner = oracle.reaches(rival)
        if sooner.any():
            x[sooner] = onto_boundary(oracle.subset(sooner), rival[sooner], tolerance)
        (x,) = oracle.drop_finished(x)
    return x


def candidate(view: DecisionAccess, attempt: int) -> Tensor:
    """Draw an image a row that may reach the goal.

    Untargeted rows try uniform noise first; then everyone tries images of the data, which a chosen class needs. What
    resists both is tried with noise on ever fewer values: it reaches corners of the box that full noise never does.
    """
    centre = view.ball.centre
    if isinstance(view.goal, Targeted):
        attempt += NOISE
    if attempt < NOISE:
        return view.rng.uniform(*centre.shape[1:])
    if attempt < NOISE + PHOTOS:
        return view.start_images()
    share = 2.0 ** -(attempt % 7)
    lot, noise = view.rng.uniform(*centre.shape[1:]), view.rng.uniform(*centre.shape[1:])
    least = per_row(lot.flatten(1).amin(1), lot)  # one value changes at least
    return torch.where(lot <= least.clamp(min=share), noise, centre)


# ---------------------------------------------------------------- paths, and searches along them


def bisect(oracle: Oracle, path: Path, low: Tensor, high: Tensor, tolerance: Tensor | float) -> Tensor:
    """Close in on where a path, followed downwards from `high`, stops reaching the goal; return the upper ends.

    Numbers are one a row, or many that are searched side by side. Each row asks until its brackets are narrow.
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
    """Return the path from the clean images, at 0, to these, at 1: a line, or under Linf a cut at each height."""
    centre, delta, size = view.ball.centre, x - view.ball.centre, view.ball.distance(x)

    def path(t: Tensor) -> Tensor:
        if isinstance(view.ball.norm, LInf):
            height = per_row((t * size).to(x.dtype), x)
            return centre + torch.minimum(torch.maximum(delta, -height), height)
        return centre + per_row(t.to(x.dtype), x) * delta

    return path


def onto_boundary(oracle: Oracle, x: Tensor, tolerance: Tensor | float) -> Tensor:
    """Bring points that reach the goal as near to the clean images as their path allows, up to a part of its length."""
    path = towards_clean(oracle.view, x)
    high = torch.ones(len(x), dtype=torch.float64, device=x.device)
    return path(bisect(oracle, path, torch.zeros_like(high), high, tolerance)).clamp(0, 1)


def at_distance(view: DecisionAccess, direction: Tensor, size: Tensor) -> Tensor:
    """Return the points at these distances, in L2, where a direction from the clean image leads along the box.

    A value that meets its wall stays there while the others go on, so the shortest way to a plane is such a path.
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
    """Scale to Euclidean length one; what has no length stays."""
    size = x.flatten(lead).square().sum(-1).sqrt().clamp(min=1e-12)
    return x / size.view(*size.shape, *(1,) * (x.dim() - lead))
