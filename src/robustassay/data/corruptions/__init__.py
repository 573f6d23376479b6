"""Common corruptions (Hendrycks & Dietterich 2019): 15 ways in which pictures go wrong, at 5 severities each.

`corrupt` spoils any dataset as it is read; `read_cell` reads images that others have spoilt, in CIFAR-10-C's or
ImageNet-C's files.
"""

from robustassay.data.corruptions import blur, digital, noise, weather  # noqa: F401 - importing them registers them
from robustassay.data.corruptions.corruption import SEVERITIES, Corruption
from robustassay.data.corruptions.files import read_cell
from robustassay.data.corruptions.grid import KINDS, Cell, cells, corrupt, create

__all__ = ["KINDS", "SEVERITIES", "Cell", "Corruption", "cells", "corrupt", "create", "read_cell"]
