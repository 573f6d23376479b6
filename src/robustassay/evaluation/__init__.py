"""From a model, data, a threat and an attack to verified records."""

from robustassay.evaluation.options import Execution, Search
from robustassay.evaluation.pipeline import evaluate
from robustassay.evaluation.result import Result

__all__ = ["Execution", "Result", "Search", "evaluate"]
