"""Tensors with one value per row, beside tensors with one image per row."""

import torch
from torch import Tensor


def per_row(values: Tensor, images: Tensor) -> Tensor:
    """Reshape values, `[rows]` or `[rows, q]`, to broadcast with images of the same leading dimensions."""
    return values.view(*values.shape, *(1,) * (images.dim() - values.dim()))


def where_rows(rows: Tensor, these: Tensor | float, others: Tensor) -> Tensor:
    """Return `these` in the marked rows and `others` elsewhere."""
    return torch.where(per_row(rows, others), these, others)
