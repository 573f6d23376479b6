"""The recipes that made the zoo, and the loop that runs them.

Every file of this folder is imported here, so that a registered recipe is found by its name.
"""

import importlib
import pkgutil

from assay.train.data import TrainingData
from assay.train.loop import EpochDone, train
from assay.train.natural import Natural
from assay.train.pgd import PGDTraining
from assay.train.recipe import Recipe

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["EpochDone", "Natural", "PGDTraining", "Recipe", "TrainingData", "train"]
