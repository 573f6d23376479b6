"""JPEG compression of the image."""

import io
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from robustassay.defenses import jpeg_steps
from robustassay.defenses.defense import Transform, setting
from robustassay.errors import BadRequest
from robustassay.registry import register


@final
@register("defense", "jpeg")
@dataclass(frozen=True)
class JPEG(Transform):
    """Encode each image as JPEG and decode it (Dziugaite et al. 2016, arXiv:1608.00853)."""

    random = False
    shattered = True
    replays = True  # on a GPU; a recording of other images fails, as they leave it

    quality: int = setting(75, 1, 95)
    """Quality of the encoder, from 1 to 95."""

    def __call__(self, x: Tensor) -> Tensor:
        """Encode every image in memory with eight bits and decode it; on a GPU its lossy steps give the same bits."""
        if x.shape[1] not in (1, 3):
            raise BadRequest(f"JPEG holds images of 1 or 3 channels, not {x.shape[1]}: choose another defense.")
        if x.is_cuda and jpeg_steps.is_covered(x):
            pixels = (x.detach().clamp(0, 1) * 255).round()
            return jpeg_steps.encode_and_decode(pixels, self.quality).to(x.dtype) / 255
        eight_bits = (x.detach().clamp(0, 1) * 255).round().byte().cpu().permute(0, 2, 3, 1).numpy()
        back = np.stack([self._encode_and_decode(pixels) for pixels in eight_bits])
        return torch.from_numpy(back).to(x).permute(0, 3, 1, 2) / 255

    def _encode_and_decode(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Encode and decode one image [height, width, channels]."""
        file = io.BytesIO()
        Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(file, "JPEG", quality=self.quality)
        return np.asarray(Image.open(file)).reshape(pixels.shape)
