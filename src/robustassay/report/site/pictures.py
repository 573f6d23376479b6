"""Images as PNG data URIs."""

import base64
import io
from dataclasses import dataclass
from typing import Final, final

import torch
from PIL import Image
from torch import Tensor

LARGEST_SIDE: Final = 128  # larger images are shrunk by a whole factor
_SHOWN_SIDE: Final = 96  # small images are enlarged by a whole factor to about this size


@final
@dataclass(frozen=True)
class ImageTriple:
    """The original, the magnified change and the adversarial image; only the original where no attack succeeded."""

    original: str
    change: str | None
    adversarial: str | None
    factor: int
    width: int
    height: int

    @property
    def size_bytes(self) -> int:
        """The bytes that the pictures add to the page."""
        return sum(len(uri) for uri in (self.original, self.change, self.adversarial) if uri)


def draw(x0: Tensor, x_adv: Tensor | None) -> ImageTriple:
    """Draw a clean image [C, H, W] in [0, 1] and its adversarial image."""
    original, width, height = _embed(x0)
    scale = max(1, _SHOWN_SIDE // max(width, height))
    if x_adv is None:
        return ImageTriple(original, None, None, 1, scale * width, scale * height)
    change, factor = magnified(x0, x_adv)
    return ImageTriple(original, _embed(change)[0], _embed(x_adv)[0], factor, scale * width, scale * height)


def magnified(x0: Tensor, x_adv: Tensor) -> tuple[Tensor, int]:
    """Return the change around middle grey, magnified as far as it is not clipped, and the factor."""
    delta = x_adv - x0
    factor = magnification(float(delta.abs().max()))
    return 0.5 + factor * delta, factor


def magnification(largest: float) -> int:
    """Return the largest whole factor by which a change around middle grey is not clipped."""
    return max(1, int(0.5 / max(largest, 1e-6) + 1e-4))


def to_image(x: Tensor) -> Image.Image:
    """Return an image [C, H, W] in [0, 1] as a picture, shrunk if it is large."""
    levels = (x * 255).round().clamp(0, 255).to(torch.uint8)
    pixels = levels[0] if len(levels) == 1 else levels.permute(1, 2, 0)
    image = Image.fromarray(pixels.contiguous().numpy())
    shrink = -(-max(image.size) // LARGEST_SIDE)
    return image.reduce(shrink) if shrink > 1 else image


def _embed(x: Tensor) -> tuple[str, int, int]:
    """Return an image as a PNG data URI, with its width and height."""
    image = to_image(x)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}", *image.size
