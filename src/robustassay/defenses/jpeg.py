"""JPEG compression of the image."""

import io
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from robustassay.defenses.defense import Transform, setting
from robustassay.errors import BadRequest
from robustassay.registry import register


@final
@register("defense", "jpeg")
@dataclass(frozen=True)
class JPEG(Transform):
    """Each image goes through a real JPEG file (Dziugaite et al. 2016, arXiv:1608.00853)."""

    random = False
    shattered = True

    quality: int = setting(75, 1, 95)

    def __call__(self, x: Tensor) -> Tensor:
        """Write every image to a file in memory, in eight bits, and read it back."""
        if x.shape[1] not in (1, 3):
            raise BadRequest(f"JPEG holds images of 1 or 3 channels, not {x.shape[1]}: choose another defense.")
        eight_bits = (x.detach().clamp(0, 1) * 255).round().byte().cpu().permute(0, 2, 3, 1).numpy()
        back = np.stack([self._through_file(pixels) for pixels in eight_bits])
        return torch.from_numpy(back).to(x).permute(0, 3, 1, 2) / 255

    def _through_file(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Height x width x channels in and out."""
        file = io.BytesIO()
        Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(file, "JPEG", quality=self.quality)
        return np.asarray(Image.open(file)).reshape(pixels.shape)
