"""Common corruptions (Hendrycks & Dietterich 2019): 15 kinds at 5 severities each.

`corrupt` corrupts the images of any dataset when they are read; `read_corrupted` reads the published files of
CIFAR-10-C or ImageNet-C.
"""

from robustassay.data.corruptions import blur, digital, noise, weather  # noqa: F401 - importing them registers them
from robustassay.data.corruptions.corrupted_files import read_corrupted
from robustassay.data.corruptions.corruption import SEVERITIES, Corruption
from robustassay.data.corruptions.grid import KINDS, CorruptionSpec, corrupt, corruption_grid, create

__all__ = [
    "KINDS",
    "SEVERITIES",
    "Corruption",
    "CorruptionSpec",
    "corrupt",
    "corruption_grid",
    "create",
    "read_corrupted",
]
