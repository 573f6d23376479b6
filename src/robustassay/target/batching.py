"""How many images one call of a model holds."""

from typing import Final

LANES: Final = 8
"""Every call holds a multiple of so many images: matrix kernels change their order of summation for ragged
batches, and one flipped bit can flip the sign of a gradient. Padded, results do not depend on batch size."""

GPU_LANES: Final = 32
"""The same on a GPU, which chooses its kernels anew, and takes its time, for every number of images it has not met."""


BATCH: Final = {"cpu": 32, "cuda": 1024}
"""Images a call, where nobody says."""

LARGE: Final = 3 * 64 * 64
"""Values of an image beyond which a call on a CPU holds no more than its lanes: larger batches leave the caches, and
gradients at 224 x 224 were measured to take up to twice as long."""
