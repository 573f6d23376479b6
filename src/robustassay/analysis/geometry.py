"""What models predict on a plane or along a line through an image (Liu et al. 2017, section 6), as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from robustassay.errors import BadRequest

Numbers = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Regions:
    """What several models predict on a square of one plane; arrays are indexed `[v, u]`."""

    ticks: Numbers
    about: int  # the class of the margins: the true one, or a target
    labels: Mapping[str, Labels]
    margins: Mapping[str, Numbers]  # logit of that class minus the best other; zero on its boundary

    def distinct(self) -> dict[str, int]:
        """Count the labels that each model predicts (Liu et al., Table 5)."""
        return {name: len(np.unique(predicted)) for name, predicted in self.labels.items()}

    def share(self) -> dict[str, float]:
        """Return the share of the square that each model assigns to the class."""
        return {name: float((predicted == self.about).mean()) for name, predicted in self.labels.items()}

    def overlap(self, name: str, other: str, elsewhere: "Regions | None" = None) -> float:
        """Return the overlap of two models' regions of the class: their common part divided by their union.

        With `elsewhere`, the region of the other model is taken from that square, around another image.
        """
        second = self if elsewhere is None else elsewhere
        own, its = self.labels[name] == self.about, second.labels[other] == second.about
        union = int((own | its).sum())
        return float((own & its).sum()) / union if union else float("nan")

    def closed(self) -> bool:
        """Whether no model predicts the class on the edge of the square, so that every boundary is a closed curve."""
        edges = ([0, -1], slice(None)), (slice(None), [0, -1])
        return not any((found[edge] == self.about).any() for found in self.labels.values() for edge in edges)

    def surrounded(self) -> bool:
        """Whether every model predicts the class in the middle of the square and at the points next to it."""
        middle = len(self.ticks) // 2
        near = slice(middle - 1, middle + 2)
        return all((found[near, near] == self.about).all() for found in self.labels.values())

    def reach_along(self, name: str) -> tuple[float, float]:
        """Return how far from the centre, to the left and to the right, a model predicts the class."""
        row = self.labels[name][len(self.ticks) // 2] == self.about
        middle = len(self.ticks) // 2
        return _until_left(row[middle::-1], -self.ticks[middle::-1]), _until_left(row[middle:], self.ticks[middle:])


@final
@dataclass(frozen=True, eq=False)
class Linearity:
    """The logits of a model along a line (Liu et al., Figure 7)."""

    distortions: Numbers
    logits: Numbers  # `[distortions, classes]`
    label: int

    def top(self, count: int = 10) -> list[int]:
        """Return the most likely classes on the clean image, the true one first."""
        order = np.argsort(-self.logits[np.abs(self.distortions).argmin()], kind="stable").tolist()
        return [self.label, *(one for one in order if one != self.label)][: count + 1]

    def straightness(self, within: float) -> float:
        """Return the share of the true logit's variance that a straight line explains, up to a distortion."""
        near = np.abs(self.distortions) <= within
        x, y = self.distortions[near], self.logits[near, self.label]
        if len(x) < 3 or y.std() == 0 or x.std() == 0:
            return float("nan")
        return float(np.corrcoef(x, y)[0, 1] ** 2)


def intervals(adversarial: Sequence[bool] | npt.NDArray[np.bool_], at: Sequence[float]) -> list[tuple[float, float]]:
    """Return the intervals of a line in which points are adversarial, from first to last such point."""
    seen, places = np.asarray(adversarial, bool), np.asarray(at, np.float64)
    if seen.shape != places.shape or (np.diff(places) <= 0).any():
        raise BadRequest("Intervals need one value per distortion, in rising order.")
    edges = np.diff(np.concatenate(([0], seen.astype(np.int8), [0])))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return [(float(places[start]), float(places[stop])) for start, stop in zip(starts, stops, strict=True)]


def _until_left(inside: npt.NDArray[np.bool_], far: Numbers) -> float:
    """Return the last distance, from the centre outwards, before the class changes."""
    if not inside[0]:
        return 0.0
    return float(far[-1] if inside.all() else far[int(inside.argmin()) - 1])
