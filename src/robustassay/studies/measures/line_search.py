"""Images along a direction: how strong a step reaches a distance, and the first image that reaches the goal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.target import TargetModel
from robustassay.threat import Goal, labels_of
from robustassay.threat.rmsd import rmsd

POINTS_PER_QUERY: Final = 8
"""Points of a line that are queried together: a row that is finished wastes few of them."""

VALUES_AT_ONCE: Final = 1 << 23
"""Values of all points of a query: on a CPU, larger tensors take longer to allocate than to compute."""

VALUES_ON_GPU: Final = 1 << 25
"""The same on a GPU: 222 photographs, which it computes at once."""

NOT_ASKED: Final = -1
"""The label of a point that a model was not asked about."""

LONGEST: Final = 6.0
"""How much longer a step may be than the RMSD that it leads to, before the search of a line ends."""


def along(x: Tensor, direction: Tensor, strength: float) -> Tensor:
    """Move images along directions of unit RMS, by a strength on the 0 to 255 scale, and clip to the pixel box."""
    return (x + strength / 255 * direction).clamp(0, 1)


def strength_for_rmsd(mean_rmsd: Callable[[float], float], wanted: float, high: float = 255.0) -> float:
    """Return the strength at which images have an average RMSD of `wanted` (0 to 255).

    The average must rise with the strength, as it does along a line: clipping slows it down but never reverses it.
    """
    from scipy.optimize import brentq

    if wanted <= 0:
        raise BadRequest(f"An average RMSD to match must be above 0, not {wanted:g}.")

    def excess(strength: float) -> float:
        return mean_rmsd(strength) - wanted

    if excess(high) < 0:
        most = wanted + excess(high)
        raise BadRequest(f"An average RMSD of {wanted:g} cannot be reached, {most:.3g} is the most: ask for less.")
    return float(brentq(excess, 0.0, high, xtol=1e-6, rtol=1e-6))


def values_at_once(device: torch.device) -> int:
    """Return how many values the points of a query may have on a device."""
    return VALUES_ON_GPU if device.type == "cuda" else VALUES_AT_ONCE


def minimal_rmsd(
    targets: Sequence[TargetModel], x: Tensor, direction: Tensor, goal: Goal, step: float = 0.1, end: float = 100.0
) -> Tensor:
    """Return the RMSD of the first image along each row's line that reaches the goal on all models; infinite if none.

    A search in small steps, not a bisection: the images that reach the goal may lie in several intervals (Liu et al.
    2017, section 3.2.2), and bisection finds any one of them. A row is searched up to an RMSD of `end`; clipping makes
    that a longer step along a gradient that sits on few values, by a factor of `LONGEST` at most.
    """
    return minimal_rmsds({"": targets}, x, direction, goal, step, end)[""]


def minimal_rmsds(
    groups: Mapping[str, Sequence[TargetModel]], x: Tensor, direction: Tensor, goal: Goal, step: float, end: float
) -> dict[str, Tensor]:
    """Return the same for several groups of models: a model that is in several is asked once per point."""
    at_once = max(1, values_at_once(x.device) // (POINTS_PER_QUERY * x[0].numel()))
    every = torch.arange(len(x), device=x.device)
    parts = [_minimal_rmsds(groups, x, direction, goal, step, end, rows) for rows in torch.split(every, at_once)]
    return {name: torch.cat([part[name] for part in parts]) for name in groups}


def _minimal_rmsds(
    groups: Mapping[str, Sequence[TargetModel]],
    x: Tensor,
    direction: Tensor,
    goal: Goal,
    step: float,
    end: float,
    rows: Tensor,
) -> dict[str, Tensor]:
    found = {name: torch.full((len(rows),), torch.inf, dtype=torch.float64, device=x.device) for name in groups}
    first_row = int(rows[0])
    strengths = torch.arange(int(LONGEST * end / step + 1e-6) + 1, device=x.device) * step
    for some in torch.split(strengths, POINTS_PER_QUERY):
        if not len(rows):
            break
        points = torch.stack([along(x[rows], direction[rows], float(strength)) for strength in some], 1)
        far = torch.stack([rmsd(points[:, at], x[rows]) for at in range(len(some))], 1)
        within, own = far <= end + 1e-6, goal.among(rows)
        known: dict[TargetModel, Tensor] = {}
        for name, targets in groups.items():
            wanted = within & found[name][rows - first_row].isinf()[:, None]
            reached = _reached_on_all(targets, points, own, wanted, known)
            hit, first = reached.any(1), reached.int().argmax(1)
            found[name][rows[hit] - first_row] = far[hit, first[hit]]
        open_still = torch.stack([values[rows - first_row].isinf() for values in found.values()]).any(0)
        rows = rows[open_still & (far[:, -1] < end)]
    return found


def reach(target: TargetModel, x: Tensor, direction: Tensor, labels: Tensor, step: float, end: float) -> Tensor:
    """Return how far along each row's line, not clipped to the pixel box, a model first leaves its label.

    Distances are in steps of unit RMS on the 0 to 255 scale; infinite where the label is kept to the end.
    """
    found = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    rows = torch.arange(len(x), device=x.device)
    for at in range(1, int(end / step + 1e-6) + 1):
        if not len(rows):
            break
        left = labels_of(target.mean_logits(x[rows] + at * step / 255 * direction[rows])) != labels[rows]
        found[rows[left]] = at * step
        rows = rows[~left]
    return found


def reached_along(target: TargetModel, x: Tensor, direction: Tensor, goal: Goal, strengths: Sequence[float]) -> Tensor:
    """Say per row and strength whether the goal is reached, `[rows, strengths]`."""
    found = []
    for row in range(len(x)):  # a line of photographs is 70 MB
        one = torch.tensor([row], device=x.device)
        points = torch.stack([along(x[one], direction[one], strength) for strength in strengths], 1)
        found.append(_reached_on_all([target], points, goal.among(one)))
    return torch.cat(found)


def _reached_on_all(
    targets: Sequence[TargetModel],
    points: Tensor,
    goal: Goal,
    wanted: Tensor | None = None,
    known: dict[TargetModel, Tensor] | None = None,
) -> Tensor:
    """Query each model only on the wanted points that reached the goal on those before it; `known` keeps its labels."""
    reached = torch.ones(points.shape[:2], dtype=torch.bool, device=points.device) if wanted is None else wanted
    known = {} if known is None else known
    for target in targets:
        predicted = known.setdefault(target, torch.full(points.shape[:2], NOT_ASKED, device=points.device))
        new = reached & (predicted == NOT_ASKED)
        if new.any():
            predicted[new] = labels_of(target.mean_logits(points[new]))
        reached = reached & (predicted != NOT_ASKED) & goal.met(predicted)
    return reached
