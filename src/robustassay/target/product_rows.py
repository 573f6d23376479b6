"""Finds how many rows a product of matrices needs, on this processor, for the same bits in every batch.

On many processors Intel's library for products picks other kernels for few rows. `robustassay` asks it for one kernel
(`MKL_CBWR`, strict) when it is imported. In a process that has computed a product before, this comes too late, and
calls hold more rows instead.
"""

from functools import cache
from typing import Final

import torch
import torch.nn.functional as F

MOST: Final = 64
"""Rows of the products that the others are compared with, and of a call where nothing less has the same bits."""

SHAPES: Final = ((12, 4), (512, 10), (768, 300))
"""Inputs and outputs of the layers that are tried."""


@cache
def rows_with_equal_bits(least: int, threads: int) -> int:
    """Return the least number of rows, `least` times a power of two, that this processor computes as it does 64.

    `threads` is torch's number of threads; the kernels depend on it.
    """
    rows = least
    while rows < MOST and not _have_equal_bits(rows):
        rows *= 2
    return rows


@torch.no_grad()
def _have_equal_bits(rows: int) -> bool:
    """Compare products of this many rows, and of multiples of it, with the first rows of a larger one."""
    generator = torch.Generator().manual_seed(0)
    for inputs, outputs in SHAPES:
        x, slopes = (torch.rand(MOST, size, generator=generator) for size in (inputs, outputs))
        weight, bias = torch.rand(outputs, inputs, generator=generator), torch.rand(outputs, generator=generator)
        forward, backward = F.linear(x, weight, bias), slopes @ weight
        for count in range(rows, MOST, rows):
            if not torch.equal(F.linear(x[:count], weight, bias), forward[:count]):
                return False
            if not torch.equal(slopes[:count] @ weight, backward[:count]):
                return False
    return True
