"""From a model, data, a threat and an attack to verified records."""

from robustassay.evaluation.options import Execution, Search
from robustassay.evaluation.result import Result
from robustassay.evaluation.run import evaluate

__all__ = ["Execution", "Result", "Search", "evaluate"]
