"""Random resizing and padding (R&P)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.defenses.defense import Transform, setting
from robustassay.registry import register


@final
@register("defense", "resize-pad")
@dataclass(frozen=True)
class ResizePad(Transform):
    """Shrink each image by a random ratio and place it at random on a black image (Xie et al. 2018, arXiv:1711.01991).

    As Dong et al. 2020 do it, the result has the size of the image: ratios go from `low` to 1, pixels are copied
    from the nearest. Where an image lands is drawn for each alone; given the draw it is linear, hence differentiable.
    """

    random = True
    replays = True

    low: float = setting(0.875, 0.1, 1)
    """Least side of a shrunken image, as a part of the side of the image."""

    def __call__(self, x: Tensor) -> Tensor:
        """Select rows, then columns, with matrices of zeros and ones."""
        ratio = self.low + (1 - self.low) * torch.rand(len(x), device=x.device)
        rows, columns = (_chosen(side, ratio, x) for side in x.shape[2:])
        return rows @ x @ columns.mT


def _chosen(side: int, ratio: Tensor, x: Tensor) -> Tensor:
    """Return `[n, 1, side, side]` matrices that shrink one side by each ratio and shift it at random."""
    shrunk = (side * ratio).round().clamp(min=1)
    shift = (torch.rand_like(ratio) * (side - shrunk + 1)).floor()
    place = torch.arange(side, device=x.device) - shift[:, None]  # of each new pixel, within the shrunk image
    source = (place * side / shrunk[:, None]).floor()
    inside = (place >= 0) & (place < shrunk[:, None])
    taken = source[:, :, None] == torch.arange(side, device=x.device)
    return (taken & inside[:, :, None]).to(x.dtype)[:, None]
