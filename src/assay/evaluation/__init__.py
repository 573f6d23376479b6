"""From a model, data, a threat and an attack to verified records."""

from assay.evaluation.result import Result
from assay.evaluation.run import evaluate

__all__ = ["Result", "evaluate"]
