"""The training recipes of the zoo, and the training loop.

Every file of this folder is imported here, so that a registered recipe is found by its name.
"""

import importlib
import pkgutil

from robustassay.train.data import TrainingData
from robustassay.train.loop import EpochDone, train
from robustassay.train.natural import Natural
from robustassay.train.pgd import PGDTraining
from robustassay.train.recipe import Recipe

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["EpochDone", "Natural", "PGDTraining", "Recipe", "TrainingData", "train"]
