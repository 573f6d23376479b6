"""Measures the adversarial robustness of image classifiers and says how far each number can be trusted.

The public names load on first use, so that `assay --help` does not wait for torch.
"""

import difflib
import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustassay import attacks, defenses
    from robustassay.evaluation import Execution, Result, Search
    from robustassay.evaluation.pipeline import evaluate
    from robustassay.models import load as load_model
    from robustassay.threat import L0, L1, L2, LabelList, LeastLikely, LInf, RandomTarget, ThreatModel

__version__ = "0.2.0"

# Intel's library reads this at the first product of matrices: from then on an image has the same logits in every batch.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

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


if not TYPE_CHECKING:  # type checkers know the names above, and report others

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(_unknown(name))
        if name in ("attacks", "defenses"):
            return importlib.import_module(f"robustassay.{name}")
        module, _, attribute = _HOME.get(name, "robustassay.threat").partition(":")
        return getattr(importlib.import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _unknown(name: str) -> str:
    """Say that there is no such name, and which one is similar."""
    by_lower = {known.lower(): known for known in __all__}
    similar = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    hint = f": did you mean {by_lower[similar[0]]}?" if similar and not name.startswith("__") else ""
    return f"robustassay has no {name}{hint}"
