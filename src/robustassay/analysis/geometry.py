"""How models lie to each other around an image (Liu et al. 2017, arXiv:1611.02770, section 6).

Distances are root mean squares on the 0..255 scale, as in the paper: one step along a direction moves an image by an
RMSD of one. Points may leave the pixel box, outside of which there are no images; a plane or ray can be held inside.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.rng import Streams
from robustassay.target import TargetModel
from robustassay.threat import Goal, Untargeted, labels_of

LEVELS: Final = 255
"""Steps of an 8-bit image: what a pixel value is counted in."""

Numbers = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Height = Callable[[Tensor, Goal], Tensor]


def goals_own(logits: Tensor, goal: Goal) -> Tensor:
    """Return the loss that attacks climb."""
    return goal.loss(logits)


def own_logit(logits: Tensor, goal: Goal) -> Tensor:
    """Return the logit of the class that each goal is about."""
    return logits.gather(1, goal.labels[:, None]).squeeze(1)


def directions(network: TargetModel, x: Tensor, goal: Goal, height: Height = goals_own) -> Tensor:
    """Return the gradient at each image, of unit RMS; zero where there is none."""
    gradient, _ = network.gradient(x, height, goal)
    return unit(gradient)


def unit(direction: Tensor) -> Tensor:
    """Scale each image to unit RMS; its largest value is taken out first, as squares may underflow."""
    flat = direction.double().flatten(1)
    flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    size = flat.square().mean(1, keepdim=True).sqrt()
    return (flat / size.clamp(min=1e-12)).reshape(direction.shape).to(direction.dtype)


def gradient_cosines(
    networks: Mapping[str, TargetModel], x: Tensor, goal: Goal, height: Height = goals_own
) -> pd.DataFrame:
    """Return the mean over images of the cosine between the gradients of each two models (Liu et al., Table 33).

    An image at which a model has no gradient has no angle to it and is left out of the means of that model.
    """
    found = {name: directions(network, x, goal, height).double().flatten(1) for name, network in networks.items()}
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
    in_box: bool = False  # whether points are clipped to [0, 1], which bends the plane far out

    @classmethod
    def through(cls, centre: Tensor, along: Tensor, seed: int = 0, name: str = "", in_box: bool = False) -> "Plane":
        """Span a plane by a direction, such as a gradient or the way to an adversarial image, and a random one."""
        first = unit(along[None].double())[0]
        if not first.any():
            raise BadRequest("A plane needs a direction that is not zero: choose a model with a gradient there.")
        drawn = Streams.of(seed, [f"plane/{name}"], centre.device).normal(*centre.shape)[0].double()
        across = unit((drawn - (drawn * first).mean() * first)[None])[0]
        return cls(centre, first.to(centre.dtype), across.to(centre.dtype), in_box)

    def points(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the images at these coordinates."""
        beside = (-1, *(1,) * self.centre.dim())
        moved = u.view(beside) * self.along.double() + v.view(beside) * self.across.double()
        x = (self.centre.double() + moved / LEVELS).to(self.centre.dtype)
        return x.clamp(0, 1) if self.in_box else x


@final
@dataclass(frozen=True, eq=False)
class Regions:
    """What several models say on a square of one plane; arrays are indexed `[v, u]`, both from -reach to reach."""

    ticks: Numbers
    about: int  # the class that margins are about: the true one, or a target
    labels: Mapping[str, Labels]
    margins: Mapping[str, Numbers]  # logit of that class minus the best other: zero on its boundary

    def distinct(self) -> dict[str, int]:
        """Count the labels that each model gives somewhere (Liu et al., Table 5)."""
        return {name: len(np.unique(said)) for name, said in self.labels.items()}

    def share(self) -> dict[str, float]:
        """Return the part of the square that each model gives the class in question."""
        return {name: float((said == self.about).mean()) for name, said in self.labels.items()}

    def reach_along(self, name: str) -> tuple[float, float]:
        """Return how far from the centre, to the left and to the right, a model keeps the class in question."""
        row = self.labels[name][len(self.ticks) // 2] == self.about
        middle = len(self.ticks) // 2
        return _until_left(row[middle::-1], -self.ticks[middle::-1]), _until_left(row[middle:], self.ticks[middle:])


def regions(networks: Mapping[str, TargetModel], plane: Plane, about: int, reach: float, steps: int = 61) -> Regions:
    """Ask all models about a grid of so many points a side; an odd number has the image itself in the middle."""
    if reach <= 0 or steps < 2:
        raise BadRequest(f"A grid needs a reach above 0 and at least 2 steps, not {reach:g} and {steps}.")
    ticks = np.linspace(-reach, reach, steps)
    labels: dict[str, Labels] = {name: np.zeros((steps, steps), np.int64) for name in networks}
    margins: dict[str, Numbers] = {name: np.zeros((steps, steps)) for name in networks}
    u = torch.tensor(ticks, dtype=torch.float64, device=plane.centre.device)
    goal = Untargeted(torch.full((steps,), about, device=plane.centre.device))
    for row in range(steps):
        x = plane.points(u, u[row].expand(steps))
        for name, network in networks.items():
            logits = network.mean_logits(x)
            labels[name][row] = labels_of(logits).cpu().numpy()
            margins[name][row] = goal.margin(logits).double().cpu().numpy()
    return Regions(ticks, about, labels, margins)


def ray(centre: Tensor, direction: Tensor, distortions: Sequence[float], in_box: bool = False) -> Tensor:
    """Return the images so far from the centre along one direction."""
    plane = Plane(centre, unit(direction[None])[0], torch.zeros_like(centre), in_box)
    far = torch.tensor(distortions, dtype=torch.float64, device=centre.device)
    return plane.points(far, torch.zeros_like(far))


@final
@dataclass(frozen=True, eq=False)
class Linearity:
    """The logits of a model along a ray (Liu et al., Figure 7)."""

    distortions: Numbers
    logits: Numbers  # `[distortions, classes]`
    label: int

    def top(self, count: int = 10) -> list[int]:
        """Return the classes that lead on the clean image, the true one first."""
        order = np.argsort(-self.logits[np.abs(self.distortions).argmin()], kind="stable").tolist()
        return [self.label, *(one for one in order if one != self.label)][: count + 1]

    def straightness(self, within: float) -> float:
        """Return the share of the true logit's variance up to a distortion that a straight line explains."""
        near = np.abs(self.distortions) <= within
        x, y = self.distortions[near], self.logits[near, self.label]
        if len(x) < 3 or y.std() == 0 or x.std() == 0:
            return float("nan")
        return float(np.corrcoef(x, y)[0, 1] ** 2)


def linearity(
    network: TargetModel,
    centre: Tensor,
    direction: Tensor,
    label: int,
    distortions: Sequence[float],
    in_box: bool = False,
) -> Linearity:
    """Follow a model's logits along a direction."""
    logits = network.mean_logits(ray(centre, direction, distortions, in_box))
    return Linearity(np.asarray(distortions, np.float64), logits.double().cpu().numpy(), label)


def intervals(adversarial: Sequence[bool] | npt.NDArray[np.bool_], at: Sequence[float]) -> list[tuple[float, float]]:
    """Return from where to where along a ray points are adversarial, first to last seen so; there may be several."""
    seen, places = np.asarray(adversarial, bool), np.asarray(at, np.float64)
    if seen.shape != places.shape or (np.diff(places) <= 0).any():
        raise BadRequest("Intervals need one answer for each distortion, in rising order.")
    edges = np.diff(np.concatenate(([0], seen.astype(np.int8), [0])))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return [(float(places[start]), float(places[stop])) for start, stop in zip(starts, stops, strict=True)]


def adversarial_intervals(
    network: TargetModel,
    centre: Tensor,
    direction: Tensor,
    goal: Goal,
    distortions: Sequence[float],
    in_box: bool = True,
) -> list[tuple[float, float]]:
    """Find where along a direction the goal of one image is reached; a bisection would see one interval at most."""
    logits = network.mean_logits(ray(centre, direction, distortions, in_box))
    return intervals(goal.met(labels_of(logits)[None])[0].cpu().numpy(), distortions)


def _until_left(inside: npt.NDArray[np.bool_], far: Numbers) -> float:
    """Return the last distance before the class is left, walking outwards."""
    if not inside[0]:
        return 0.0
    return float(far[-1] if inside.all() else far[int(inside.argmin()) - 1])
