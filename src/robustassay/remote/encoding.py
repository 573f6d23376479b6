"""Encodes images for requests."""

import base64
import hashlib
import io
import json
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.remote.adapter import Adapter


def round_to_8_bits(x: Tensor) -> Tensor:
    """Round every value to the nearest 1/255."""
    return x.clamp(0, 1).mul(255).round().div(255)


@final
@dataclass(frozen=True)
class SentImage:
    """The values of one image as they are sent, `[channels, height, width]`, and their hash."""

    values: npt.NDArray[Any]
    sha256: str

    @classmethod
    def of(cls, image: Tensor, eight_bits: bool) -> "SentImage":
        """Take an image in [0, 1]."""
        if image.dim() != 3 or image.shape[0] not in (1, 3):
            raise BadRequest(f"A service is sent grey or RGB images, not tensors of shape {tuple(image.shape)}.")
        shown = image.detach().cpu()
        values = (shown.clamp(0, 1) * 255).round().numpy().astype(np.uint8) if eight_bits else shown.float().numpy()
        head = f"{values.dtype}{values.shape}".encode()
        return cls(values, hashlib.sha256(head + values.tobytes()).hexdigest())

    def file(self, adapter: Adapter) -> bytes:
        """Write the image as a PNG or JPEG file."""
        pixels = self.values.transpose(1, 2, 0)
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        buffer = io.BytesIO()
        if adapter.encoding == "jpeg":
            image.save(buffer, "JPEG", quality=adapter.quality)
        else:
            image.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()


def encode_request(images: list[SentImage], adapter: Adapter) -> dict[str, Any]:
    """Return the arguments of httpx that send some images in one request."""
    if adapter.body == "oip":
        values = np.stack([image.values for image in images])
        tensor = {
            "name": "images",
            "shape": list(values.shape),
            "datatype": "UINT8" if adapter.eight_bits else "FP32",
            "data": values.flatten().tolist(),
        }
        return {"json": {"inputs": [tensor]}}
    (image,) = images
    content, kind = image.file(adapter), f"image/{adapter.encoding}"
    if adapter.body == "raw":
        return {"content": content, "headers": {"Content-Type": kind}}
    if adapter.body == "multipart":
        return {"files": {adapter.form_field: (f"image.{adapter.encoding}", content, kind)}}
    text = adapter.template.replace("{image}", base64.b64encode(content).decode())
    return {"json": json.loads(text)}
