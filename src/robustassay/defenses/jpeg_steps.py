"""JPEG's lossy steps as tensor operations: the bits of libjpeg's encoder and decoder, for many images at once on a GPU.

Only Huffman coding is left out, as it loses nothing. Each pass of libjpeg's integer transform (`jfdctint`, `jidctint`)
is an integer matrix and a rounded shift. Products are exact in float64.
"""

from functools import cache
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK: Final = 8
SIDE: Final = 16
"""Sides must be multiples of this: with chroma at half the resolution, libjpeg then pads nothing."""

LUMA: Final = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55), (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62), (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip
CHROMA: Final = (
    (17, 18, 24, 47, 99, 99, 99, 99), (18, 21, 26, 66, 99, 99, 99, 99), (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99), *((99,) * 8,) * 4,
)  # fmt: skip
"""The tables of the JPEG standard, annex K."""

EVEN: Final = ((8192, 8192, 8192, 8192), (10703, 4433, -4433, -10703), (8192, -8192, -8192, 8192),
               (4433, -10704, 10704, -4433))  # fmt: skip
"""Rows 0, 2, 4 and 6 of the transform, times 2^13: their left half, the right one is its mirror image."""


def is_covered(x: Tensor) -> bool:
    """Say whether these images have three channels and sides for which nothing is padded."""
    return x.shape[1] == 3 and x.shape[2] % SIDE == 0 and x.shape[3] % SIDE == 0


def encode_and_decode(pixels: Tensor, quality: int) -> Tensor:
    """Return images `[n, 3, height, width]` of whole numbers from 0 to 255 as libjpeg would give them back."""
    red, green, blue = pixels.double().unbind(1)
    luma = _shift(19595 * red + 38470 * green + 7471 * blue, 16)
    blueness = _floor(32768 * blue - 11059 * red - 21709 * green + (128 << 16) + 32767, 16)
    redness = _floor(32768 * red - 27439 * green - 5329 * blue + (128 << 16) + 32767, 16)
    luma = _coded(luma[:, None], LUMA, quality)[:, 0]
    chroma = _enlarged(_coded(_halved(torch.stack((blueness, redness), 1)), CHROMA, quality)) - 128
    blueness, redness = chroma.unbind(1)
    back = (
        luma + _shift(91881 * redness, 16),
        luma + _shift(-22554 * blueness - 46802 * redness, 16),
        luma + _shift(116130 * blueness, 16),
    )
    return torch.stack(back, 1).clamp(0, 255)


def _coded(plane: Tensor, table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """Transform blocks, round their coefficients to multiples of the table's, and transform back."""
    n, channels, height, width = plane.shape
    matrix, steps = _matrix(plane.device), _steps(table, quality, plane.device)
    blocks = plane.reshape(n, channels, height // BLOCK, BLOCK, width // BLOCK, BLOCK).transpose(3, 4) - 128
    found = _shift(matrix @ _shift(blocks @ matrix.T, 11), 15)
    whole = 8 * steps
    found = found.sign() * ((found.abs() + (whole / 2).floor()) / whole).floor() * steps
    back = _shift(_shift(matrix.T @ found, 11) @ matrix, 18) + 128
    return back.clamp(0, 255).transpose(3, 4).reshape(plane.shape)


def _halved(plane: Tensor) -> Tensor:
    """Average squares of four values; what is rounded up and down alternates from column to column."""
    bias = 1 + torch.arange(plane.shape[3] // 2, device=plane.device) % 2
    return _floor(4 * F.avg_pool2d(plane, 2) + bias, 2)


def _enlarged(plane: Tensor) -> Tensor:
    """Double both sides by triangle filters."""
    up, down = (_neighbour(plane, 2, step) for step in (-1, 1))
    rows = torch.stack((3 * plane + up, 3 * plane + down), 3).flatten(2, 3)
    left, right = (_neighbour(rows, 3, step) for step in (-1, 1))
    return torch.stack((_floor(3 * rows + left + 8, 4), _floor(3 * rows + right + 7, 4)), 4).flatten(3, 4)


def _neighbour(plane: Tensor, dim: int, step: int) -> Tensor:
    """Return the next value in one direction; at the edge the value itself."""
    places = torch.arange(plane.shape[dim], device=plane.device)
    return plane.index_select(dim, (places + step).clamp(0, plane.shape[dim] - 1))


@cache  # recordings of calls read the same tensors later
def _matrix(device: torch.device) -> Tensor:
    """Return the transform times 2^13, with the rounded products of libjpeg's constants."""
    rows = torch.zeros(BLOCK, BLOCK, dtype=torch.float64)
    for row, left in enumerate(EVEN):
        rows[2 * row] = torch.tensor([*left, *left[::-1]], dtype=torch.float64)
    for column in range(BLOCK):
        x = [int(at == column) for at in range(BLOCK)]
        a, b, c, d = (x[3 - at] - x[4 + at] for at in range(4))
        turn = 9633 * (a + b + c + d)
        ac, bd = turn - 16069 * (a + c), turn - 3196 * (b + d)
        ad, bc = -7373 * (a + d), -20995 * (b + c)
        rows[1::2, column] = torch.tensor(
            [12299 * d + ad + bd, 25172 * c + bc + ac, 16819 * b + bc + bd, 2446 * a + ad + ac], dtype=torch.float64
        )
    return rows.to(device)


@cache
def _steps(table: tuple[tuple[int, ...], ...], quality: int, device: torch.device) -> Tensor:
    """Return the quantisation steps of a quality."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((torch.tensor(table) * scale + 50) // 100).clamp(1, 255).double().to(device)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Divide by a power of two and round half up."""
    return _floor(x + (1 << (bits - 1)), bits)


def _floor(x: Tensor, bits: int) -> Tensor:
    return (x * 2.0**-bits).floor()
