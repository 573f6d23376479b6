"""Decodes image files from untrusted clients; accepts only complete 8-bit PNG or JPEG files of the right size."""

import io
import warnings
from typing import Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robustassay.serve.http_error import HttpError

MODES: Final = ("L", "P", "RGB", "1")
"""Pillow's modes with at most 8 bits per value and no transparency."""

END_MARKERS: Final = {"PNG": b"IEND\xaeB`\x82", "JPEG": b"\xff\xd9"}
"""The bytes every complete file of a format holds."""


def decode(content: bytes, shape: tuple[int, int, int]) -> Tensor:
    """Return the image in a file, `[channels, height, width]` in [0, 1]; the size is checked before decompression."""
    channels, height, width = shape
    if not content:
        raise HttpError(400, "The request is empty: send the bytes of a PNG or JPEG file as the body.")
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            warnings.simplefilter("ignore")  # an unusual but readable file is accepted
            if image.size != (width, height):
                found = f"{image.size[0]} x {image.size[1]}"
                raise HttpError(422, f"The image is {found} pixels: send one of {width} x {height} (width x height).")
            if image.mode not in MODES:
                raise HttpError(
                    422,
                    f"The image has mode {image.mode}: send 8-bit grey or RGB, no alpha.",
                )
            if END_MARKERS[image.format or ""] not in content:  # Pillow would accept a truncated file
                raise HttpError(400, "The file is truncated: send the complete file.")
            pixels = np.array(image.convert("RGB" if channels == 3 else "L"))
    except HttpError:
        raise
    except Exception as error:  # a decoder may raise anything on a malicious file
        raise HttpError(
            400, "The body is not a valid PNG or JPEG file, or it is too large: send a complete file."
        ) from error
    planes = torch.from_numpy(pixels.reshape(height, width, channels)).permute(2, 0, 1)
    return planes.float().div(255)
