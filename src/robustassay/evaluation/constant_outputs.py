"""Tells a model that is constant around the data from one that hides its gradient.

Both have a gradient of zero everywhere. A model that hides it changes between images, or under large noise, at the
latest when its label changes; a dead network does neither, and no attack can change its prediction there.
"""

from typing import Final

import torch
from torch import Tensor

from robustassay.rng import Streams
from robustassay.target import TargetModel

IMAGES: Final = 16
SIZES: Final = (0.01, 0.03, 0.1, 0.3)
"""Changes of all values: all up, all down, and with random signs."""

NOISE: Final = (0.1, 0.25, 0.5)
"""Sizes of normal noise that changes the predictions of any network that looks at its input."""

SEED: Final = 0


def is_constant(target: TargetModel, x: Tensor) -> bool:
    """Say whether images, mixtures of them and noisy copies, far outside of any usual ball, have equal outputs."""
    if target.random:
        return False
    x = x[:IMAGES]
    first = target.logits(x)
    return bool((first == first[:1]).all()) and bool((target.logits(_around(x)) == first[:1]).all())


def _around(x: Tensor) -> Tensor:
    """Return changed copies of the images."""
    rng = Streams.of(SEED, [str(row) for row in range(len(x))], x.device)
    shape = x.shape[1:]
    signed = [x + size * signs for size in SIZES for signs in (1, -1, rng.rademacher(*shape), rng.rademacher(*shape))]
    noisy = [x + size * rng.normal(*shape) for size in NOISE]
    mixed = [x.flip(-1), (x + x.roll(1, 0)) / 2, (x + x.flip(-1).roll(1, 0)) / 2]
    return torch.cat((*signed, *noisy, *mixed)).clamp(0, 1)
