"""The images an attacker may use: all within eps of the clean image and inside the pixel box."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

from torch import Tensor

from robustassay.rng import Streams
from robustassay.threat.norms import Norm
from robustassay.threat.shapes import per_row


@final
@dataclass(frozen=True)
class Ball:
    """One ball per row: all images within `eps` of the row's centre, inside [0, 1].

    Points are `[rows, *image]`, or `[rows, q, *image]` for several points per row.
    """

    norm: Norm
    centre: Tensor
    eps: Tensor

    def among(self, rows: Tensor) -> "Ball":
        """Return the balls of some rows."""
        return Ball(self.norm, self.centre[rows], self.eps[rows])

    def project(self, x: Tensor) -> Tensor:
        """Return the nearest point of the ball, in Euclidean distance."""
        many = x.dim() > self.centre.dim()
        if self.norm.is_box:
            lower, upper = self._box
            return x.clamp(lower[:, None], upper[:, None]) if many else x.clamp(lower, upper)
        centre, eps = self._beside(x)
        lower, upper = (side[:, None] if many else side for side in self._room)
        delta = self.norm.project(self._flat(x) - centre, lower, upper, eps)
        return self._image(centre + delta, x)

    @cached_property
    def _box(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest value of each pixel, of a ball that is a box itself."""
        radius = per_row(self.eps, self.centre)
        return (self.centre - radius).clamp(min=0), (self.centre + radius).clamp(max=1)

    @cached_property
    def _room(self) -> tuple[Tensor, Tensor]:
        """How far each value may move down and up before it leaves the box."""
        centre = self.centre.flatten(1)
        return -centre, 1 - centre

    def step(self, x: Tensor, gradient: Tensor, length: Tensor) -> Tensor:
        """Move from x by a length (one per row) along the steepest ascent of this norm, staying in the ball."""
        point = self._flat(x)
        if x.dim() > self.centre.dim():
            length = length[:, None]
        move = self.norm.steepest(self._flat(gradient), -point, 1 - point, length)
        return self.project(self._image(point + move, x, clip=False))

    def sample(self, rng: Streams) -> Tensor:
        """Draw a point uniformly from the ball, then clip it to the box."""
        centre = self._flat(self.centre)
        delta = self.norm.sample(rng, *self._room, self.eps)
        return self.project(self._image(centre + delta, self.centre))

    def distance(self, x: Tensor) -> Tensor:
        """Measure how far points are from their centres, in float64."""
        centre, _ = self._beside(x)
        return self.norm.size(self._flat(x).double() - centre.double())

    def holds(self, x: Tensor, distance: Tensor) -> Tensor:
        """Return which points, given their distances, are inside ball and box, up to float32 rounding."""
        return self.in_box(x) & (distance <= (self.reach if distance.dim() == 1 else self.reach[:, None]))

    @property
    def reach(self) -> Tensor:
        """The largest measured distance of a point of each ball, in float64, with float32 rounding."""
        return self.eps.double() + self.norm.slack(math.prod(self.centre.shape[1:]))

    def in_box(self, x: Tensor) -> Tensor:
        """Return which points have every value in [0, 1]."""
        point = self._flat(x)
        return (point.amin(-1) >= 0) & (point.amax(-1) <= 1)  # `aminmax` of rows takes twenty times as long

    def _flat(self, x: Tensor) -> Tensor:
        return x.flatten(x.dim() - self.centre.dim() + 1)

    def _beside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return flat centres and radii shaped like x, which may hold several points per row."""
        centre = self.centre.flatten(1)
        return (centre, self.eps) if x.dim() == self.centre.dim() else (centre[:, None], self.eps[:, None])

    def _image(self, flat: Tensor, like: Tensor, clip: bool = True) -> Tensor:
        image = flat.reshape(like.shape)
        return image.clamp(0, 1) if clip else image
