"""Random mixtures of a few colours (RandMix)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.defenses.defense import Transform, setting
from robustassay.registry import register


@final
@register("defense", "randmix")
@dataclass(frozen=True)
class RandMix(Transform):
    """Add noise, then replace each pixel by a soft mixture of a few random colours of the same image.

    Zhang and Liang 2019, arXiv:1903.10586, in the settings of Dong et al. 2020. Those hold for images in [-1, 1]
    (noise 32/255, alpha = sigma = 10); on [0, 1] the noise is half of that and squared distances count four times.
    """

    random = True

    colours: int = setting(5, 1)
    """Number of colours."""
    noise: float = setting(16 / 255)
    """Standard deviation of the noise."""
    sharpness: float = setting(40.0)
    """How much of a mixture the nearest colour takes; higher values make it take more."""
    spread: float = setting(40.0)
    """How much likelier colours are that are far from those drawn before."""
    candidates: int = setting(100, 1)
    """Random pixels from which the colours are drawn."""
    copies: int = setting(10, 1)
    """Random copies whose logits are averaged."""

    def __call__(self, x: Tensor) -> Tensor:
        """Draw the colours from one noisy version of the image and apply them to another."""
        colours = self._draw(_pixels(x + self.noise * torch.randn_like(x)))
        pixels = (x + self.noise * torch.randn_like(x)).flatten(2)
        # Minus the squared distance without the pixel's own square, which changes no softmax.
        near = 2 * (colours @ pixels) - colours.square().sum(2, keepdim=True)
        part = torch.softmax(self.sharpness * near, 1)
        return (colours.mT @ part).view_as(x)

    def _draw(self, pixels: Tensor) -> Tensor:
        """Draw colours `[n, colours, channels]` from some pixels; pixels far from all drawn colours are more likely."""
        chosen = torch.randint(pixels.shape[1], (len(pixels), self.candidates), device=pixels.device)
        pool = _taken(pixels, chosen)
        colours = _taken(pool, torch.zeros_like(chosen[:, :1]))  # in random order: the first is a random one
        while colours.shape[1] < self.colours:
            far = _squared_distances(pool.detach(), colours.detach()).amin(2)
            likely = torch.softmax(self.spread * far, 1)
            colours = torch.cat((colours, _taken(pool, torch.multinomial(likely, 1))), 1)
        return colours


def _pixels(x: Tensor) -> Tensor:
    """Return images as `[n, pixels, channels]`."""
    return x.flatten(2).mT


def _taken(pixels: Tensor, which: Tensor) -> Tensor:
    return pixels.gather(1, which[:, :, None].expand(-1, -1, pixels.shape[2]))


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared distances `[n, p, q]` between `[n, p, channels]` and `[n, q, channels]`."""
    return (a[:, :, None] - b[:, None]).square().sum(3)
