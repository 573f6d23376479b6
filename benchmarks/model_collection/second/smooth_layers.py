"""Layers with true gradients that networks rarely have."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Change) -> None:
        super().__init__()
        self.function = function

    def forward(self, h: Tensor) -> Tensor:
        """Return the function's value."""
        return self.function(h)


def head(classes: int, *parts: nn.Module, values: int) -> nn.Module:
    """Layers, a 4 x 4 grid of means, and a dense layer."""
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(values, classes))


class Residual(nn.Module):
    """Adds its input."""

    def __init__(self, *parts: nn.Module, factor: float = 1.0) -> None:
        super().__init__()
        self.inner, self.factor = nn.Sequential(*parts), factor

    def forward(self, h: Tensor) -> Tensor:
        """Return the sum."""
        total: Tensor = h + self.factor * self.inner(h)
        return total


class GlobalFilter(nn.Module):
    """Multiplies the spectrum by learned complex numbers (Rao et al. 2021)."""

    def __init__(self, channels: int, rows: int, columns: int) -> None:
        super().__init__()
        self.real = nn.Parameter(1 + 0.1 * torch.randn(channels, rows, columns // 2 + 1))
        self.imaginary = nn.Parameter(0.1 * torch.randn(channels, rows, columns // 2 + 1))

    def forward(self, h: Tensor) -> Tensor:
        """Return the filtered maps."""
        filtered = torch.fft.rfft2(h, norm="ortho") * torch.complex(self.real, self.imaginary)
        maps: Tensor = torch.fft.irfft2(filtered, s=h.shape[2:], norm="ortho")
        return maps


class SqueezeExcite(nn.Module):
    """Scales the channels by a function of their means (Hu et al. 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(channels, 4), nn.ReLU(), nn.Linear(4, channels), nn.Sigmoid())

    def forward(self, h: Tensor) -> Tensor:
        """Return the scaled channels."""
        scaled: Tensor = h * self.gate(h.mean((2, 3)))[:, :, None, None]
        return scaled


class StandardisedConv(nn.Conv2d):
    """A convolution with standardised weights (Qiao et al. 2019)."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the maps."""
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(h, w, self.bias, self.stride, self.padding)
