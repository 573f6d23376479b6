"""Compares the logits of two passes over the same images, on the scale of the leading logits.

The largest logit is no scale: one class at -1e9, as masked-out classes often have, would hide every difference.
"""

from typing import Final

import torch
from torch import Tensor

LEADING: Final = 5
"""The scale is the largest gap between the first and the fifth logit of an image."""

FAR: Final = 100.0
"""Logits that lie this many scales below the highest one do not matter."""


ROUNDINGS: Final = 8
"""Differences of this many roundings of a logit do not count."""


def relative_difference(expected: Tensor, found: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the largest change per image of a logit against the highest one, as a fraction of the scale.

    What `ROUNDINGS` roundings of a logit in this floating type explain is left out.
    """
    scale = spread(expected)
    top = expected.argmax(1, keepdim=True)
    before, after = (
        (logits.double() - logits.double().gather(1, top)).clamp(-FAR * scale, FAR * scale)
        for logits in (expected, found)
    )
    rounding = ROUNDINGS * torch.finfo(dtype).eps * float(expected[near_top(expected)].abs().amax())
    return ((after - before).abs().amax(1) - rounding).clamp(min=0) / scale


def near_top(logits: Tensor) -> Tensor:
    """Say which logits matter."""
    return logits >= logits.amax(1, keepdim=True) - FAR * spread(logits)


def spread(logits: Tensor) -> float:
    """Return the largest gap between the highest and the fifth logit of an image, without classes far below."""
    leading = logits.double().topk(min(LEADING, logits.shape[1]), dim=1).values
    gaps = (leading[:, :1] - leading[:, 1:]).amax(0)
    return max(float(gaps[gaps <= FAR * gaps[0]].amax()), 1e-12)
