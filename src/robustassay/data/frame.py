"""Frames: how a photograph becomes the input of a network. Perturbations then have the size of that input.

PIL resizes and crops the 8-bit photograph, as in the usual training and evaluation pipelines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt
from PIL import Image

from robustassay.errors import BadRequest

FILTERS: Final[Mapping[str, Image.Resampling]] = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@final
@dataclass(frozen=True)
class Frame:
    """Resize the short side, or height and width, to `resize` pixels, then crop the centre to `size`, height and width.

    Photographs that are cropped already are only resized, to `size`.
    """

    size: tuple[int, int] = (224, 224)
    resize: int | tuple[int, int] = 256
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        smallest = self.resize if isinstance(self.resize, int) else min(self.resize)
        if self.interpolation not in FILTERS or not 0 < min(self.size) <= max(self.size) <= smallest:
            raise BadRequest(
                f"A frame needs a size of at least 1, a resize that is not smaller, and one of {', '.join(FILTERS)}, "
                f"not {self}: write it as frame:size=224,resize=256,interpolation=bicubic."
            )

    @classmethod
    def parse(cls, spec: str) -> "Frame":
        """Parse `frame:size=224,resize=256,interpolation=bicubic`; `resize` defaults to `size`."""
        settings = dict(part.partition("=")[::2] for part in spec.partition(":")[2].split(",") if part.strip())
        try:
            side = int(settings.pop("size"))
            resize = int(settings.pop("resize", side))
            return cls((side, side), resize, **settings)
        except (KeyError, ValueError, TypeError) as error:
            raise BadRequest(
                f"{spec!r} is not a frame: write it as frame:size=224,resize=256,interpolation=bicubic."
            ) from error

    def __str__(self) -> str:
        return f"{self.size[0]}x{self.size[1]}"

    def apply(self, image: Image.Image, precropped: bool) -> npt.NDArray[np.uint8]:
        """Return the pixels [height, width, channels] of the network's input; a `precropped` image is only resized."""
        (height, width), kind = self.size, FILTERS[self.interpolation]
        if precropped:
            return np.asarray(image if image.size == (width, height) else image.resize((width, height), kind))
        scaled = self._scaled(image.width, image.height)
        image = image if image.size == scaled else image.resize(scaled, kind)
        left, top = round((image.width - width) / 2), round((image.height - height) / 2)
        return np.asarray(image.crop((left, top, left + width, top + height)))

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        if not isinstance(self.resize, int):
            return self.resize[1], self.resize[0]
        short = min(width, height)
        return max(self.resize, self.resize * width // short), max(self.resize, self.resize * height // short)
