"""Plants adversarial examples: finds, without any gradient, a binary head and a point of the ball that it calls wrong.

Random points of the ball's surface show how the features vary around a sample. A head that looks in one random
direction of this variation, and the sum of the random perturbations weighted by what the head says of each, give a
point far outside the cloud of random points. The threshold is placed just below this point (after Zimmermann et al.
2022, arXiv:2206.13991). So an adversarial example exists, random points do not find it, and an attack that works does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.evaluation.planted_model import CLASSES, FeatureModel, PlantedModel, last_linear_layer
from robustassay.rng import Streams
from robustassay.target import TargetModel
from robustassay.threat import Ball, Goal, Norm, Untargeted, per_row, where_rows

POINTS: Final = 64
"""Random points of the ball per sample that the head is fitted to."""

CHECKED_POINTS: Final = 16
"""Further random points per sample, none of which may be adversarial."""

ROUNDS: Final = 1
ROUND_POINTS: Final = 32
REACH: Final = 0.25
"""Rounds of the random search for the point to plant, points per round, and their distance as a part of the radius."""

ASCENT_STEPS: Final = 10
ASCENT_STEP: Final = 0.25
"""Steps of the gradient ascent that sets the threshold of gradient attacks, and their length as a part of eps."""

HARDNESS: Final = 0.5
"""Where the threshold of gradient attacks lies on the way from the clean score (0) to the end of that ascent (1)."""

GRID: Final = 8
"""Random perturbations are constant on the cells of a grid of this many rows and columns: networks react to them."""

VALUES_AT_ONCE: Final = 1 << 24
"""Values of perturbed images that are held at once."""

CLOSENESS: Final = 0.9
"""Where the threshold lies on the way from the clean score (0) to the score of the planted point (1)."""

DIRECTIONS: Final = 8
"""Directions of largest variation of the features among which the head chooses."""

SEED: Final = "self-test"


@final
@dataclass(frozen=True, eq=False)
class Planted:
    """Binary heads with one planted adversarial example each, and what it cost to plant them."""

    base: TargetModel
    layer: str | None
    norm: Norm
    ids: tuple[str, ...]
    x0: Tensor
    x_adv: Tensor
    weights: Tensor
    offsets: Tensor
    forwards: int
    backwards: int

    def target(self, rows: Sequence[int]) -> TargetModel:
        """Return the model behind the heads of these rows."""
        chosen = list(rows)

        def wrap(module: nn.Module) -> nn.Module:
            features = FeatureModel(module, self.layer)
            heads = self.weights[chosen], self.offsets[chosen]
            return PlantedModel(features, self.x0[chosen], *heads, self.norm.order)

        return self.base.with_head(wrap, CLASSES, self.x_adv[chosen])

    @property
    def apart(self) -> bool:
        """Whether no two balls overlap, so that one model can hold all heads."""
        flat = self.x0.flatten(1).cpu().float()
        distance = torch.cdist(flat, flat, p=self.norm.order).fill_diagonal_(torch.inf)
        return bool(distance.amin() > 2 * self.norm.eps)


def plant(
    target: TargetModel, norm: Norm, ids: Sequence[str], x0: Tensor, seed: int, by_gradient: bool = True
) -> Planted:
    """Plant an adversarial example in the ball of each image; rows where that fails are left out.

    An attack that follows gradients gets harder ones: `by_gradient` raises the threshold to a part of what a short
    gradient ascent reaches on the same head, where that is more than random search reaches.
    """
    exact = target.exact
    layer = _feature_layer(exact, x0[:1])
    features = _feature_target(exact, layer, x0)
    rng = Streams.of(seed, [f"{SEED}/{sample}" for sample in ids], x0.device)
    ball = Ball(norm, x0, torch.full((len(x0),), norm.eps, device=x0.device))
    clean = features.mean_logits(x0).double()
    noise, drawn = _random_points(ball, rng, POINTS, features)
    heads = _Heads.fit(drawn, exact.classes, rng)
    x_adv = _search(ball, rng, features, heads, torch.einsum("rn,rn...->r...", heads.scores(drawn).float(), noise))
    reached = features.mean_logits(x_adv).double()
    heads = heads.towards(reached)
    _, fresh = _random_points(ball, rng, CHECKED_POINTS, features)
    start, end = heads.scores(clean[:, None])[:, 0], heads.scores(reached[:, None])[:, 0]
    threshold = start + CLOSENESS * (end - start)
    if by_gradient:
        x_far = _ascend(ball, features, heads)
        far = start + HARDNESS * (heads.scores(features.mean_logits(x_far)[:, None])[:, 0] - start)
        x_adv, threshold = where_rows(far > threshold, x_far, x_adv), torch.maximum(threshold, far)
    highest = heads.scores(torch.cat((drawn, fresh), 1)).amax(1)
    kept = ((threshold > start) & (threshold > highest)).nonzero().squeeze(1)
    weights, offsets = heads.linear(threshold)
    scale = _clean_margins(clean[:, -exact.classes :]) / (threshold - start)
    forwards, backwards = planting_passes(by_gradient)
    return Planted(
        base=target,
        layer=layer,
        norm=norm,
        ids=tuple(ids[row] for row in kept.tolist()),
        x0=x0[kept],
        x_adv=x_adv[kept],
        weights=(scale[:, None] * weights)[kept],
        offsets=(scale * offsets)[kept],
        forwards=forwards * len(x0) * exact.draws,
        backwards=backwards * len(x0) * exact.draws,
    )


def planting_passes(by_gradient: bool) -> tuple[int, int]:
    """Return the forward and backward passes that planting one example takes."""
    points = 2 + POINTS + ROUNDS * ROUND_POINTS + CHECKED_POINTS + (ASCENT_STEPS + 1) * by_gradient
    return points, ASCENT_STEPS * by_gradient


def _ascend(ball: Ball, features: TargetModel, heads: "_Heads") -> Tensor:
    """Follow the gradient of the score for a few long steps."""
    weights, _ = heads.linear(torch.zeros_like(heads.head[:, 0]))
    goal = Untargeted(torch.zeros(len(weights), dtype=torch.int64, device=weights.device))

    def score(logits: Tensor, _: Goal, weight: Tensor) -> Tensor:
        return (logits * weight).sum(-1)

    x = ball.centre
    for _ in range(ASCENT_STEPS):
        gradient, _ = features.gradient(x, score, goal, weights.float())
        x = ball.step(x, gradient, ASCENT_STEP * ball.eps)
    return x


def _search(ball: Ball, rng: Streams, features: TargetModel, heads: "_Heads", direction: Tensor) -> Tensor:
    """Raise the score by random search: sum up random directions, weighted by the change of the score along each."""
    x = ball.step(ball.centre, _enlarge(direction, ball.centre), ball.eps)
    for _ in range(ROUNDS):
        total = torch.zeros_like(direction)
        for points in _portions(ROUND_POINTS // 2, ball.centre):
            noise = rng.normal(points, *_grid(ball.centre))
            both = _features_near(ball, x, torch.cat((noise, -noise), 1), REACH, features)
            ahead, back = torch.split(heads.scores(both), points, 1)
            total += torch.einsum("rn,rn...->r...", (ahead - back).float(), noise)
        direction = direction / _length(direction) + total / _length(total)
        x = ball.step(ball.centre, _enlarge(direction, ball.centre), ball.eps)
    return x


def _length(direction: Tensor) -> Tensor:
    return per_row(direction.flatten(1).square().sum(1).sqrt().clamp(min=1e-12), direction)


def _feature_layer(exact: TargetModel, image: Tensor) -> str | None:
    """Name the layer whose input are the features, if it is the last one on the way of the gradient too."""
    with torch.no_grad():
        layer = last_linear_layer(exact.module, lambda: exact.call(image), 1)
        declared = last_linear_layer(exact.module, lambda: exact.call_differentiable(image), 1)
    return layer if layer == declared else None


def _feature_target(exact: TargetModel, layer: str | None, x0: Tensor) -> TargetModel:
    """Return a target whose outputs are the features of the model."""

    def wrap(module: nn.Module) -> nn.Module:
        return FeatureModel(module, layer)

    with torch.no_grad():
        width = exact.with_head(wrap, exact.classes).call(x0[:1]).shape[1]
    return exact.with_head(wrap, width)


def _random_points(ball: Ball, rng: Streams, points: int, features: TargetModel) -> tuple[Tensor, Tensor]:
    """Draw points of each ball's surface; return their directions, and features `[rows, points, d]` in float64."""
    noise, found = [], []
    for portion in _portions(points, ball.centre):
        noise.append(rng.normal(portion, *_grid(ball.centre)))
        found.append(_features_near(ball, ball.centre, noise[-1], 1.0, features))
    return torch.cat(noise, 1), torch.cat(found, 1)


def _portions(points: int, x: Tensor) -> Iterator[int]:
    """Cut a number of points per row into portions that fit into memory together."""
    portion = max(1, VALUES_AT_ONCE // x.numel())
    yield from (min(portion, points - start) for start in range(0, points, portion))


def _features_near(ball: Ball, x: Tensor, noise: Tensor, reach: float, features: TargetModel) -> Tensor:
    """Step from x in directions `[rows, n, ...]`; return the features `[rows, n, d]` there, in float64."""
    rows, points = noise.shape[:2]
    start = x[:, None].expand(-1, points, *x.shape[1:])
    directions = _enlarge(noise.flatten(0, 1), start.flatten(0, 1)).view_as(start)
    moved = ball.step(start, directions, reach * ball.eps)
    return features.mean_logits(moved.flatten(0, 1)).double().view(rows, points, -1)


def _grid(x: Tensor) -> tuple[int, ...]:
    """Return the shape of a perturbation of one image: coarse where the image has rows and columns."""
    shape = tuple(x.shape[1:])
    return (shape[0], GRID, GRID) if len(shape) == 3 and min(shape[1:]) > GRID else shape


def _enlarge(noise: Tensor, x: Tensor) -> Tensor:
    """Bring coarse perturbations to the size of the images."""
    return noise if noise.shape == x.shape else F.interpolate(noise, size=x.shape[2:], mode="nearest")


def _clean_margins(logits: Tensor) -> Tensor:
    """Return the margin between the two highest logits, so that a planted model has the scale of the model."""
    first, second = logits.double().topk(2, 1).values.unbind(1)
    return (first - second).clamp(min=1e-6)


def _largest_directions(varied: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest singular values of points `[rows, n, d]`, and their directions `[rows, d, k]`.

    They come from the products of the points: few numbers, whose eigenvectors a CPU finds faster than a GPU.
    """
    values, vectors = torch.linalg.eigh((varied @ varied.transpose(1, 2)).cpu())
    sizes = values.flip(1)[:, :k].clamp(min=0).sqrt().to(varied.device)
    left = vectors.flip(2)[:, :, :k].to(varied.device)
    return sizes, varied.transpose(1, 2) @ left / sizes.clamp(min=1e-30)[:, None]


@final
@dataclass(frozen=True, eq=False)
class _Heads:
    """One linear head per row, on features whose variation is whitened in its largest directions."""

    centre: Tensor  # [rows, d]
    basis: Tensor  # [rows, d, k]: from features to whitened coordinates
    head: Tensor  # [rows, k], of length one

    @classmethod
    def fit(cls, drawn: Tensor, classes: int, rng: Streams) -> "_Heads":
        """Whiten the variation of random points; every other row sees the logits only. Choose random directions."""
        rows, points, width = drawn.shape
        centre = drawn.mean(1)
        varied = drawn - centre[:, None]
        is_logit = torch.arange(width, device=drawn.device) >= width - classes
        on_logits = torch.arange(rows, device=drawn.device) % 2 == 1
        seen = (is_logit[None] == on_logits[:, None]) | (classes == width)
        varied = varied * seen[:, None]
        sizes, right = _largest_directions(varied, min(DIRECTIONS, points, width))
        k = sizes.shape[1]
        spread = sizes / points**0.5
        used = spread > 1e-4 * spread[:, :1]
        inverse = torch.where(used & (spread > 0), 1 / spread.clamp(min=1e-30), 0)
        basis = right * inverse[:, None] * seen[:, :, None]
        head = rng.normal(k).double() * (inverse > 0)
        return cls(centre, basis, F.normalize(head, dim=1))

    def coordinates(self, features: Tensor) -> Tensor:
        """Return the whitened coordinates of features `[rows, n, d]`."""
        return (features.double() - self.centre[:, None]) @ self.basis

    def scores(self, features: Tensor) -> Tensor:
        """Return the scores of features `[rows, n, d]`, in standard deviations of random points."""
        return (self.coordinates(features) @ self.head[:, :, None]).squeeze(2)

    def towards(self, planted: Tensor) -> "_Heads":
        """Return the heads that separate the planted points best from random ones: Fisher's discriminant."""
        return _Heads(self.centre, self.basis, F.normalize(self.coordinates(planted[:, None])[:, 0], dim=1))

    def linear(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights and offsets on the features themselves."""
        weights = (self.basis @ self.head[:, :, None]).squeeze(2)
        return weights, -(weights * self.centre).sum(1) - threshold
