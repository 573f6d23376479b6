"""Writes images for the documentation with few colours, in a third of the bytes."""

from pathlib import Path
from typing import Final

from PIL import Image

COLOURS: Final = 64
"""The number of colours; enough for plots and pages."""


def shrink(picture: Path, out: Path) -> None:
    """Write an image with few colours."""
    with Image.open(picture) as shown:
        # The default method mixes the thin lines of a plot, blue and green into one: this one keeps their colours.
        few = shown.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(out, optimize=True)
