"""One value a row beside one image a row."""

import torch
from torch import Tensor


def per_row(values: Tensor, images: Tensor) -> Tensor:
    """Shape values, `[rows]` or `[rows, q]`, to meet images that follow the same leading dimensions."""
    return values.view(*values.shape, *(1,) * (images.dim() - values.dim()))


def where_rows(rows: Tensor, these: Tensor | float, others: Tensor) -> Tensor:
    """Take these images in the rows that are marked, and the others elsewhere."""
    return torch.where(per_row(rows, others), these, others)
