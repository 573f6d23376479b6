"""Files from strangers to tensors: what is not a small, whole, 8-bit PNG or JPEG of the right size is refused."""

import io
import warnings
from typing import Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robustassay.serve.refusal import Refusal

MODES: Final = ("L", "P", "RGB", "1")
"""What has 8 bits a value or fewer and no transparency."""


ENDS: Final = {"PNG": b"IEND\xaeB`\x82", "JPEG": b"\xff\xd9"}
"""What every whole file of a format holds."""


def decode(content: bytes, shape: tuple[int, int, int]) -> Tensor:
    """Return the image of a file, `[channels, height, width]` in [0, 1]; its size is checked before it is unpacked."""
    channels, height, width = shape
    if not content:
        raise Refusal(400, "The request is empty: send the bytes of a PNG or JPEG file as its body.")
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            warnings.simplefilter("ignore")  # a file that is odd but readable is the client's business
            if image.size != (width, height):
                found = f"{image.size[0]} x {image.size[1]}"
                raise Refusal(422, f"The image is {found} pixels: send one of {width} x {height} (width x height).")
            if image.mode not in MODES:
                raise Refusal(422, f"The image has mode {image.mode}: send 8 bits a value, grey or RGB, and no alpha.")
            if ENDS[image.format or ""] not in content:  # the decoder forgives a lost end, its sender should know
                raise Refusal(400, "The file breaks off before its end: send a whole one.")
            pixels = np.array(image.convert("RGB" if channels == 3 else "L"))
    except Refusal:
        raise
    except Exception as error:  # a decoder may raise anything on a file made to hurt it
        raise Refusal(
            400, "The body is no PNG or JPEG file, or a damaged or oversized one: send a whole one."
        ) from error
    planes = torch.from_numpy(pixels.reshape(height, width, channels)).permute(2, 0, 1)
    return planes.float().div(255)
