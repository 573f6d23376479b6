"""Root mean square deviation on the 0 to 255 scale: the distance Liu et al. 2017 (arXiv:1611.02770) report."""

import math

from torch import Tensor


def rmsd(x: Tensor, x0: Tensor) -> Tensor:
    """Measure how far each image is from its clean one, in float64."""
    return 255 * (x.double() - x0.double()).flatten(1).square().mean(1).sqrt()


def l2_of_rmsd(deviation: float, values: int) -> float:
    """Return the L2 radius, on the [0, 1] scale, of this deviation for images of `values` values."""
    return deviation / 255 * math.sqrt(values)
