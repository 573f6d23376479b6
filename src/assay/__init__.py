"""Measures the adversarial robustness of image classifiers and says how far each number can be trusted.

The public names load on first use, so that `assay --help` need not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay import attacks, defenses
    from assay.evaluation import Result, evaluate
    from assay.models import load as load_model
    from assay.threat import L0, L1, L2, LabelList, LeastLikely, LInf, RandomTarget, ThreatModel

__version__ = "0.1.0"

__all__ = [
    "L0",
    "L1",
    "L2",
    "LInf",
    "LabelList",
    "LeastLikely",
    "RandomTarget",
    "Result",
    "ThreatModel",
    "__version__",
    "attacks",
    "defenses",
    "evaluate",
    "load_model",
]

_HOME = {"evaluate": "assay.doctor", "Result": "assay.evaluation", "load_model": "assay.models:load"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"assay has no {name}")
    if name in ("attacks", "defenses"):
        return importlib.import_module(f"assay.{name}")
    module, _, attribute = _HOME.get(name, "assay.threat").partition(":")
    return getattr(importlib.import_module(module), attribute or name)
