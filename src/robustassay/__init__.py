"""Measures the adversarial robustness of image classifiers and says how far each number can be trusted.

The public names load on first use, so that `assay --help` does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustassay import attacks, defenses
    from robustassay.evaluation import Execution, Result, Search
    from robustassay.evaluation.pipeline import evaluate
    from robustassay.models import load as load_model
    from robustassay.threat import L0, L1, L2, LabelList, LeastLikely, LInf, RandomTarget, ThreatModel

__version__ = "0.2.0"

__all__ = [
    "L0",
    "L1",
    "L2",
    "Execution",
    "LInf",
    "LabelList",
    "LeastLikely",
    "RandomTarget",
    "Result",
    "Search",
    "ThreatModel",
    "__version__",
    "attacks",
    "defenses",
    "evaluate",
    "load_model",
]

_HOME = {
    "Execution": "robustassay.evaluation",
    "Result": "robustassay.evaluation",
    "Search": "robustassay.evaluation",
    "evaluate": "robustassay.evaluation",
    "load_model": "robustassay.models:load",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"robustassay has no {name}")
    if name in ("attacks", "defenses"):
        return importlib.import_module(f"robustassay.{name}")
    module, _, attribute = _HOME.get(name, "robustassay.threat").partition(":")
    return getattr(importlib.import_module(module), attribute or name)
