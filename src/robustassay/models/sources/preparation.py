"""Preparation: the preprocessing of a model, read from its configuration and made part of it."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustassay.errors import BadModel


@final
@dataclass(frozen=True)
class Preparation:
    """Resize (the short side, or both), crop the centre, normalise: in pixels, and on the [0, 1] scale.

    `size` is what the network sees, height and width. `resize` is one number for the short side, two for both.
    """

    size: tuple[int, int]
    resize: int | tuple[int, int]
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.interpolation not in ("bilinear", "bicubic", "nearest"):
            raise BadModel(
                f"The model wants its images resized by {self.interpolation}, which cannot be differentiated here: "
                "wrap it in a file of yours and name it as file.py:factory."
            )


@final
class Prepared(nn.Module):
    """A network with its preparation, which is differentiable.

    Images that already have the network's size are only normalised, as leaderboards do; all others are resized
    and cut first, so that a perturbation is measured on the image as it was given.
    """

    replays = True
    """Every call of one image size makes the same operations."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, preparation: Preparation) -> None:
        super().__init__()
        self.network = network
        self.preparation = preparation
        self.register_buffer("mean", torch.tensor(preparation.mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(preparation.std).view(1, -1, 1, 1))

    def extra_repr(self) -> str:
        """Return the preparation, which is part of the model's identity."""
        return str(self.preparation)

    def forward(self, x: Tensor) -> Tensor:
        """Prepare the images and return the network's logits."""
        if tuple(x.shape[-2:]) != self.preparation.size:
            x = _cut(_resized(x, self.preparation), self.preparation.size)
        out = self.network((x - self.mean) / self.std)
        logits: Tensor = getattr(out, "logits", out)
        return logits


def _resized(x: Tensor, preparation: Preparation) -> Tensor:
    size = preparation.resize
    if isinstance(size, int):
        height, width = x.shape[-2:]
        short = min(height, width)
        size = (max(size, round(size * height / short)), max(size, round(size * width / short)))
    if preparation.interpolation == "nearest":
        return F.interpolate(x, size, mode="nearest-exact")
    # PIL, and so every training pipeline, resizes with antialiasing; bicubic overshoots.
    return F.interpolate(x, size, mode=preparation.interpolation, antialias=True).clamp(0, 1)


def _cut(x: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = size
    short = max(0, height - x.shape[-2]), max(0, width - x.shape[-1])
    if any(short):  # a crop larger than the image is filled with black, as torchvision and PIL do
        x = F.pad(x, (short[1] // 2, short[1] - short[1] // 2, short[0] // 2, short[0] - short[0] // 2))
    top, left = round((x.shape[-2] - height) / 2), round((x.shape[-1] - width) / 2)
    return x[..., top : top + height, left : left + width]
