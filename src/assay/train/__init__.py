"""The recipes that made the zoo, and the loop that runs them."""

from assay.train.data import TrainingData
from assay.train.loop import EpochDone, train
from assay.train.natural import Natural
from assay.train.pgd import PGDTraining
from assay.train.recipe import Recipe

__all__ = ["EpochDone", "Natural", "PGDTraining", "Recipe", "TrainingData", "train"]
