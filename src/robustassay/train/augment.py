"""The usual augmentation of small images, drawn per batch on the device of the images."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


@dataclass(frozen=True, eq=False)
class CropsAndFlips:
    """Images padded with 4 black pixels; each draw crops them at random and mirrors half of them."""

    padded: Tensor

    @classmethod
    def of(cls, images: Tensor) -> "CropsAndFlips":
        """Pad uint8 images [n, 3, height, width] once, so that a crop is a single gather."""
        return cls(F.pad(images, (PADDING,) * 4))

    def draw(self, index: Tensor, rng: torch.Generator) -> Tensor:
        """Return images `index` in [0, 1], each cropped and mirrored at random; channels last in memory."""
        n, device = len(index), index.device
        height, width = (side - 2 * PADDING for side in self.padded.shape[2:])
        top, left = torch.randint(0, 2 * PADDING + 1, (2, n, 1), generator=rng, device=device)
        mirrored = torch.randint(0, 2, (n, 1), generator=rng, device=device).bool()
        across = torch.arange(width, device=device)
        rows = top + torch.arange(height, device=device)
        columns = left + torch.where(mirrored, across.flip(0), across)
        crops = self.padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return crops.permute(0, 3, 1, 2).float() / 255
