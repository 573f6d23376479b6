"""Rounds images to what is really sent, before they are counted, measured or claimed.

So a claim is an image that still succeeds after the encoding, and its distance is that of the encoded image.
"""

from typing import Final

import torch
from torch import Tensor

from robustassay.remote.encoding import round_to_8_bits
from robustassay.threat import Ball, per_row, where_rows

SMALLEST_STEP: Final = 0.5 / 255
"""A smaller change of a value is rounded away."""

BISECTIONS: Final = 8
"""Steps of the search for a rounded point inside the ball."""


def quantise(x: Tensor, ball: Ball | None) -> Tensor:
    """Round points to 8 bits; those that rounding would move out of their ball are moved towards its centre first."""
    sent = round_to_8_bits(x)
    if ball is None:
        return sent
    out = ball.holds(x, ball.distance(x)) & ~ball.holds(sent, ball.distance(sent))
    if not bool(out.any()):
        return sent
    centre = ball.centre if x.dim() == ball.centre.dim() else ball.centre[:, None]
    low, high, best = torch.zeros_like(out, dtype=x.dtype), torch.ones_like(out, dtype=x.dtype), centre.expand_as(x)
    for _ in range(BISECTIONS):
        part = (low + high) / 2
        point = round_to_8_bits(centre + per_row(part, x) * (x - centre))
        inside = ball.holds(point, ball.distance(point))
        best = where_rows(inside, point, best)
        low, high = torch.where(inside, part, low), torch.where(inside, high, part)
    return where_rows(out, best, sent)
