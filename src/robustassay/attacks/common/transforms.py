"""Input transforms and gradient smoothing that make adversarial examples transfer better.

`diverse` is an input transform for `view.with_input_transform`, `smoothed` is applied to a gradient. Any gradient
attack runs through a transform as it is: `through(view, attack, transform)`.
"""

import math
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.rng import Streams
from robustassay.target import GradientAccess
from robustassay.target.gradient_access import InputTransform, RowTransform
from robustassay.threat import where_rows


def diverse(low: float, probability: float) -> InputTransform:
    """Shrink an image, to `low` of its size at least, and place it at random on black (Xie et al. 2019).

    Each row has its own random draws (the authors' code draws once per batch). Sizes are whole
    pixels, and one draw shrinks height and width alike, as far as `low` allows. An image without rows is one row.
    """

    def draw(rng: Streams, x: Tensor) -> RowTransform:
        chance, size, *place = rng.uniform(4).unbind(1)
        changed = chance < probability
        axes: list[Tensor] = []
        for full, part in zip(_height_and_width(x), place, strict=True):
            least = math.ceil(low * full)
            length = least + (size * (full - least + 1)).floor()
            axes.append(_resampling(full, length, (part * (full - length + 1)).floor()).to(x.dtype))

        def change(images: Tensor, row: Tensor) -> Tensor:
            down, across = (weights[row][:, None] for weights in axes)
            planes = images.reshape(len(images), -1, *_height_and_width(images))
            moved = (down @ planes @ across.mT).view_as(images)
            return where_rows(changed[row], moved, images)

        return change

    return draw


def smoothed(gradient: Tensor, kernel: int) -> Tensor:
    """Blur each channel with a Gaussian window, zeros beyond the edge, as in the paper's code (Dong et al. 2019).

    A sum of shifted images and no convolution: convolutions round differently in batches of different size.
    """
    height, width = _height_and_width(gradient)
    margin = kernel // 2
    planes = F.pad(gradient.reshape(len(gradient), -1, height, width), (margin,) * 4)
    for axis, length in ((2, height), (3, width)):
        shifted = (weight * planes.narrow(axis, k, length) for k, weight in enumerate(gaussian(kernel)))
        planes = reduce(torch.add, shifted)
    return planes.view_as(gradient)


def gaussian(kernel: int) -> list[float]:
    """Return the weights along one axis: the normal density over three deviations either way, summing to one."""
    density = torch.linspace(-3, 3, kernel, dtype=torch.float64).square().mul(-0.5).exp()
    weights: list[float] = (density / density.sum()).tolist()
    return weights


def smoothed_on_the_way_back(kernel: int) -> InputTransform:
    """Leave images as they are and smooth the gradients that come back through them."""

    def draw(rng: Streams, x: Tensor) -> RowTransform:
        def change(images: Tensor, row: Tensor) -> Tensor:
            same = images.view_as(images)
            same.register_hook(lambda gradient: smoothed(gradient, kernel))  # type: ignore[no-untyped-call]
            return same

        return change

    return draw


def through(view: GradientAccess, attack: Attack[Any], transform: InputTransform) -> Tensor:
    """Run any gradient attack with its gradients taken through a transform; return its last points."""
    seen, x = view.with_input_transform(transform), view.ball.centre.clone()
    place = seen.track(torch.arange(len(x), device=x.device))
    last = attack(seen, seen.ball.centre)
    x[place()] = last
    (x,) = view.drop_finished(x)  # the rows that left the other view leave this one
    return x


def _height_and_width(x: Tensor) -> tuple[int, int]:
    """Return the last two axes of images; vectors have one row."""
    return (x.shape[-2], x.shape[-1]) if x.dim() > 2 else (1, x.shape[-1])


def _resampling(full: int, length: Tensor, first: Tensor) -> Tensor:
    """Return matrices, one per row, that shrink an axis to a length and lay it from `first` on, zeros around it.

    Bilinear, as `F.interpolate` does it. Matrices let a batch mix sizes, and unlike those of `F.grid_sample` their
    gradients do not depend on the order in which a GPU's threads arrive.
    """
    pixel = torch.arange(full, dtype=torch.float64, device=length.device)
    length, first = length.double()[:, None], first.double()[:, None]
    source = ((pixel - first + 0.5) * (full / length) - 0.5).clamp(0, full - 1)
    weights = (1 - (source[..., None] - pixel).abs()).clamp(min=0)
    return weights * ((pixel >= first) & (pixel < first + length))[..., None]
