"""Gradient directions and decision regions of several models around an image (Liu et al. 2017, section 6).

Distances are RMSD on the 0 to 255 scale, as in the paper: one step along a direction of unit RMS moves an image by an
RMSD of 1. Points may leave the pixel box unless a plane or line is clipped to it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from robustassay.analysis.geometry import Labels, Linearity, Numbers, Regions, intervals
from robustassay.errors import BadRequest
from robustassay.rng import Streams
from robustassay.studies.measures.line_search import values_at_once
from robustassay.target import TargetModel
from robustassay.threat import Goal, Untargeted, labels_of

LEVELS: Final = 255
"""Largest value of an 8-bit pixel."""

LossFunction = Callable[[Tensor, Goal], Tensor]


def goal_loss(logits: Tensor, goal: Goal) -> Tensor:
    """Return the loss that attacks maximise."""
    return goal.loss(logits)


def label_logit(logits: Tensor, goal: Goal) -> Tensor:
    """Return the logit of each goal's label."""
    return logits.gather(1, goal.labels[:, None]).squeeze(1)


def directions(target: TargetModel, x: Tensor, goal: Goal, loss: LossFunction = goal_loss) -> Tensor:
    """Return the gradient at each image, scaled to unit RMS; zero where it vanishes."""
    gradient, _ = target.gradient(x, loss, goal)
    return unit(gradient)


def unit(direction: Tensor) -> Tensor:
    """Scale each image to unit RMS; it is divided by its largest value first, as squares may underflow."""
    flat = direction.double().flatten(1)
    flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    size = flat.square().mean(1, keepdim=True).sqrt()
    return (flat / size.clamp(min=1e-12)).reshape(direction.shape).to(direction.dtype)


def gradient_cosines(
    targets: Mapping[str, TargetModel], x: Tensor, goal: Goal, loss: LossFunction = goal_loss
) -> pd.DataFrame:
    """Return the mean over images of the cosine between the gradients of each two models (Liu et al., Table 33).

    Images at which a model's gradient vanishes are left out of that model's means.
    """
    found = {name: directions(target, x, goal, loss).double().flatten(1) for name, target in targets.items()}
    table = pd.DataFrame(np.nan, index=list(found), columns=list(found))
    for one, first in found.items():
        for two, second in found.items():
            known = (first != 0).any(1) & (second != 0).any(1)
            if known.any():
                table.loc[one, two] = float((first * second).mean(1)[known].mean())
    return table


@final
@dataclass(frozen=True, eq=False)
class Plane:
    """All images `centre + (u * along + v * across) / 255`, for two orthogonal directions of unit RMS."""

    centre: Tensor = field(repr=False)
    along: Tensor = field(repr=False)
    across: Tensor = field(repr=False)
    in_box: bool = False  # whether points are clipped to [0, 1]

    @classmethod
    def through(cls, centre: Tensor, along: Tensor, seed: int = 0, name: str = "", in_box: bool = False) -> "Plane":
        """Span a plane by a direction, such as a gradient, and a random one orthogonal to it."""
        first = unit(along[None].double())[0]
        if not first.any():
            raise BadRequest(
                "A plane needs a direction that is not zero: choose a model whose gradient does not vanish there."
            )
        drawn = Streams.of(seed, [f"plane/{name}"], centre.device).normal(*centre.shape)[0].double()
        across = unit((drawn - (drawn * first).mean() * first)[None])[0]
        return cls(centre, first.to(centre.dtype), across.to(centre.dtype), in_box)

    def points(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the images at these coordinates."""
        shape = (-1, *(1,) * self.centre.dim())
        moved = u.view(shape) * self.along.double() + v.view(shape) * self.across.double()
        x = (self.centre.double() + moved / LEVELS).to(self.centre.dtype)
        return x.clamp(0, 1) if self.in_box else x


def regions(targets: Mapping[str, TargetModel], plane: Plane, about: int, reach: float, steps: int = 61) -> Regions:
    """Query all models on a grid; with an odd number of points per side, the image itself is in the middle."""
    if reach <= 0 or steps < 2:
        raise BadRequest(f"A grid needs a reach above 0 and at least 2 steps, not {reach:g} and {steps}.")
    ticks = np.linspace(-reach, reach, steps)
    labels: dict[str, Labels] = {name: np.zeros((steps, steps), np.int64) for name in targets}
    margins: dict[str, Numbers] = {name: np.zeros((steps, steps)) for name in targets}
    u = torch.tensor(ticks, dtype=torch.float64, device=plane.centre.device)
    at_once = max(1, values_at_once(u.device) // (steps * plane.centre.numel()))
    for start in range(0, steps, at_once):
        rows = slice(start, min(start + at_once, steps))
        v = u[rows].repeat_interleave(steps)
        x = plane.points(u.repeat(len(v) // steps), v)
        goal = Untargeted(torch.full((len(x),), about, device=x.device))
        for name, target in targets.items():
            logits = target.mean_logits(x)
            labels[name][rows] = labels_of(logits).view(-1, steps).cpu().numpy()
            margins[name][rows] = goal.margin(logits).double().view(-1, steps).cpu().numpy()
    return Regions(ticks, about, labels, margins)


def line_points(centre: Tensor, direction: Tensor, distortions: Sequence[float], in_box: bool = False) -> Tensor:
    """Return the images at some distances from the centre along one direction."""
    plane = Plane(centre, unit(direction[None])[0], torch.zeros_like(centre), in_box)
    far = torch.tensor(distortions, dtype=torch.float64, device=centre.device)
    return plane.points(far, torch.zeros_like(far))


def linearity(
    target: TargetModel,
    centre: Tensor,
    direction: Tensor,
    label: int,
    distortions: Sequence[float],
    in_box: bool = False,
) -> Linearity:
    """Return a model's logits along a direction."""
    logits = target.mean_logits(line_points(centre, direction, distortions, in_box))
    return Linearity(np.asarray(distortions, np.float64), logits.double().cpu().numpy(), label)


def adversarial_intervals(
    target: TargetModel,
    centre: Tensor,
    direction: Tensor,
    goal: Goal,
    distortions: Sequence[float],
    in_box: bool = True,
) -> list[tuple[float, float]]:
    """Return the intervals along a direction in which the goal is reached; bisection would find one at most."""
    logits = target.mean_logits(line_points(centre, direction, distortions, in_box))
    return intervals(goal.met(labels_of(logits)[None])[0].cpu().numpy(), distortions)
