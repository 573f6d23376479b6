"""Norms: size, projection, steepest step and random samples of perturbations inside the pixel box.

Perturbations are flat, `[..., n]`, with one radius per leading index. `lower` and `upper` are how far each value may
move before it leaves [0, 1]; every clean image lies in the box, so lower <= 0 <= upper.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from robustassay.eps import format_eps, format_norm, parse_eps
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.rng import Streams

ROUNDING: Final = torch.finfo(torch.float32).eps
"""The rounding of one pixel in float32: the only tolerance of a distance."""


@dataclass(frozen=True)
class Norm(ABC):
    """A norm with its radius `eps` on the [0, 1] pixel scale; `8 / 255` and `"8/255"` are the same."""

    name: ClassVar[str]
    default_eps: ClassVar[str]
    order: ClassVar[float]  # the p of the p-norm
    is_box: ClassVar[bool] = False
    eps: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", parse_eps(self.eps))

    @final
    @property
    def identity(self) -> str:
        """The norm and its radius in plain letters: names of folders are made of it."""
        return f"{self.name} {format_eps(self.eps)}"

    @final
    def __str__(self) -> str:
        return f"{format_norm(self.name)} {format_eps(self.eps)}"

    @property
    @abstractmethod
    def dual(self) -> "Norm":
        """The norm of gradients: its size is the largest gain, to first order, of a step of size one."""

    @abstractmethod
    def size(self, delta: Tensor) -> Tensor:
        """Measure perturbations in float64."""

    @final
    def slack(self, n: int) -> float:
        """How far beyond eps float32 rounding alone can push an image of n values."""
        return float(self.size(torch.full((n,), ROUNDING))) if self.name != "L0" else 0.0

    @abstractmethod
    def project(self, delta: Tensor, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Return the nearest perturbation, in Euclidean distance, inside both ball and box."""

    @abstractmethod
    def steepest(self, gradient: Tensor, lower: Tensor, upper: Tensor, length: Tensor) -> Tensor:
        """Return the step of the given length that increases the loss fastest.

        L1 and L0 steps sit on few values, so they need the room of each value; L∞ and L2 steps ignore it, as in
        the literature, and are clipped by the projection.
        """

    @abstractmethod
    def sample(self, rng: Streams, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Draw uniformly from the ball, one perturbation per row; the projection clips it to the box."""


@final
@register("norm", "linf")
@dataclass(frozen=True)
class LInf(Norm):
    """No value moves by more than eps."""

    name = "Linf"
    default_eps = "8/255"
    order = float("inf")
    is_box = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps > 1:
            raise BadRequest(f"Under L∞, eps is at most 1 on the [0, 1] pixel scale, such as 8/255, not {self.eps:g}.")

    @property
    def dual(self) -> Norm:
        """L1."""
        return L1(1)

    def size(self, delta: Tensor) -> Tensor:
        """Largest absolute value."""
        return delta.abs().amax(-1).double()

    def project(self, delta: Tensor, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Clip each value."""
        radius = eps[..., None]
        return delta.clamp(torch.maximum(lower, -radius), torch.minimum(upper, radius))

    def steepest(self, gradient: Tensor, lower: Tensor, upper: Tensor, length: Tensor) -> Tensor:
        """Move every value by the full length."""
        return gradient.sign() * length[..., None]

    def sample(self, rng: Streams, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Draw each value from [-eps, eps)."""
        return rng.uniform(lower.shape[-1]).mul_(2).sub_(1) * eps[..., None]


@final
@register("norm", "l2")
@dataclass(frozen=True)
class L2(Norm):
    """The Euclidean length is at most eps."""

    name = "L2"
    default_eps = "0.5"
    order = 2.0

    @property
    def dual(self) -> Norm:
        """L2 itself."""
        return L2(1)

    def size(self, delta: Tensor) -> Tensor:
        """Euclidean length."""
        return delta.double().square().sum(-1).sqrt()

    def project(self, delta: Tensor, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Scale by t and clip to the box, with the largest t <= 1 whose clipped length is within eps.

        Start at the t that is right without a box. What the box clips leaves length to spare; the t that spends it on
        the values not yet clipped is never too large, as further clipping only shortens. Few rounds suffice.
        """
        squared = eps.double().square()[..., None]
        size = delta.square().sum(-1, keepdim=True, dtype=torch.float64)
        t = (squared / size).sqrt().nan_to_num(nan=1.0).clamp_(max=1.0)
        while True:
            scaled = delta * t.to(delta.dtype)
            inside = scaled.clamp(lower, upper)
            spare = squared - inside.square().sum(-1, keepdim=True, dtype=torch.float64)
            free = (scaled * (inside == scaled)).square().sum(-1, keepdim=True, dtype=torch.float64)
            wider = (t * (1 + spare.clamp(min=0) / free.clamp(min=1e-30)).sqrt()).clamp(max=1.0)
            grows = wider > t * (1 + 1e-7)
            if not grows.any():
                return inside
            t = torch.where(grows, wider, t)  # a row that has its t keeps it, whatever the others need

    def steepest(self, gradient: Tensor, lower: Tensor, upper: Tensor, length: Tensor) -> Tensor:
        """Follow the gradient itself, however small: its squares may underflow, so its largest value is taken out."""
        largest = gradient.abs().amax(-1, keepdim=True)
        gradient = gradient / largest.clamp(min=torch.finfo(gradient.dtype).tiny)
        size = gradient.square().sum(-1, keepdim=True).sqrt()
        return gradient / size.clamp(min=1e-12) * length[..., None]

    def sample(self, rng: Streams, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Draw a direction from the sphere and a radius from the n-th root of a uniform number."""
        n = lower.shape[-1]
        direction = rng.normal(n)
        direction /= direction.square().sum(-1, keepdim=True).sqrt()
        return direction * rng.uniform(1).double().pow(1 / n).float() * eps[..., None]


@final
@register("norm", "l1")
@dataclass(frozen=True)
class L1(Norm):
    """The absolute values sum to at most eps."""

    name = "L1"
    default_eps = "12"
    order = 1.0

    @property
    def dual(self) -> Norm:
        """L∞."""
        return LInf(1)

    def size(self, delta: Tensor) -> Tensor:
        """Sum of absolute values."""
        return delta.double().abs().sum(-1)

    def project(self, delta: Tensor, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Shrink every value by the same threshold, then clip.

        The clipped sum falls piecewise linearly as the threshold grows: a value starts to shrink when the
        threshold passes |v| - room and has vanished at |v|. Sorting these points finds the threshold.
        """
        v = delta.double()
        size, room = v.abs(), torch.where(v > 0, upper, -lower).double()
        starts, ends = (size - room).clamp(min=0), size
        points, order = torch.cat((starts, ends), -1).sort(-1)
        slope_change = torch.cat((-torch.ones_like(v), torch.ones_like(v)), -1).gather(-1, order)
        slope = slope_change.cumsum(-1)
        falls = slope[..., :-1] * points.diff(dim=-1)
        total = torch.minimum(size, room).sum(-1, keepdim=True)
        sums = torch.cat((total, total + falls.cumsum(-1)), -1)
        radius = eps.double()[..., None]
        last = ((sums > radius).sum(-1, keepdim=True) - 1).clamp(min=0)
        overshoot = (sums.gather(-1, last) - radius).clamp(min=0)
        threshold = points.gather(-1, last) - overshoot / slope.gather(-1, last).clamp(max=-1)
        threshold = torch.where(total > radius, threshold, torch.zeros_like(threshold))
        return ((size - threshold).clamp(min=0) * v.sign()).to(delta.dtype).clamp(lower, upper)

    def steepest(self, gradient: Tensor, lower: Tensor, upper: Tensor, length: Tensor) -> Tensor:
        """Spend the length on the steepest values first, each up to its bound."""
        order = gradient.abs().argsort(dim=-1, descending=True, stable=True)
        room = torch.where(gradient > 0, upper, -lower).clamp(min=0).gather(-1, order)
        room = torch.where(gradient.gather(-1, order) == 0, torch.zeros_like(room), room)
        spent_before = room.cumsum(-1) - room
        step = torch.minimum((length[..., None] - spent_before).clamp(min=0), room)
        return torch.zeros_like(gradient).scatter_(-1, order, step) * gradient.sign()

    def sample(self, rng: Streams, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Draw from the simplex by normalised exponentials, then signs."""
        n = lower.shape[-1]
        parts = -(1 - rng.uniform(n + 1)).log()
        return parts[:, :n] / parts.sum(-1, keepdim=True) * rng.rademacher(n) * eps[..., None]


@final
@register("norm", "l0")
@dataclass(frozen=True)
class L0(Norm):
    """At most eps values change, by any amount the box allows; each colour channel of a pixel is a value."""

    name = "L0"
    default_eps = "20"
    order = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps < 1 or self.eps != int(self.eps):
            raise BadRequest(f"Under L0, eps counts values and must be a whole number such as 20, not {self.eps:g}.")

    @property
    def dual(self) -> Norm:
        """None: L0 is not a norm in the strict sense."""
        raise BadRequest("L0 has no dual norm: use Linf, L2 or L1.")

    def size(self, delta: Tensor) -> Tensor:
        """Count the values that changed."""
        return (delta != 0).sum(-1).double()

    def project(self, delta: Tensor, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Keep the values that matter most for the distance."""
        inside = delta.clamp(lower, upper)
        worth = delta.square() - (delta - inside).square()
        rank = worth.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return inside * (rank < eps[..., None].floor())

    def steepest(self, gradient: Tensor, lower: Tensor, upper: Tensor, length: Tensor) -> Tensor:
        """Move the values that gain most to 0 or 1."""
        reach = torch.where(gradient > 0, upper, lower)
        rank = (gradient * reach).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return reach * (rank < length[..., None].floor()) * (gradient != 0)

    def sample(self, rng: Streams, lower: Tensor, upper: Tensor, eps: Tensor) -> Tensor:
        """Draw which values change, then what each becomes, from the whole box."""
        n = lower.shape[-1]
        chosen = rng.permutation(n) < eps[..., None].floor()
        return (lower + rng.uniform(n) * (upper - lower)) * chosen
