"""Pictures for the documentation, in a third of the bytes."""

from pathlib import Path
from typing import Final

from PIL import Image

COLOURS: Final = 128
"""Enough for plots and flat pages."""


def shrink(picture: Path, out: Path) -> None:
    """Write a picture with few colours."""
    with Image.open(picture) as shown:
        few = shown.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(out, optimize=True)
