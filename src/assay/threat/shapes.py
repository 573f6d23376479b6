"""One value a row beside one image a row."""

from torch import Tensor


def per_row(values: Tensor, images: Tensor) -> Tensor:
    """Shape values, `[rows]` or `[rows, q]`, to meet images that follow the same leading dimensions."""
    return values.view(*values.shape, *(1,) * (images.dim() - values.dim()))
