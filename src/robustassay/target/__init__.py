"""The only door to a model: what an attacker may see of it, and the ledger of what was seen."""

from robustassay.target.access import DecisionAccess, NoRowsLeft, ScoreAccess
from robustassay.target.ensemble_model import EnsembleModel, Join
from robustassay.target.gradient_access import GradientAccess
from robustassay.target.ledger import Ledger
from robustassay.target.local_model import LocalModel, Loss, SurrogateFailed, TargetModel
from robustassay.target.start_images import StartImages

__all__ = [
    "DecisionAccess",
    "EnsembleModel",
    "GradientAccess",
    "Join",
    "Ledger",
    "LocalModel",
    "Loss",
    "NoRowsLeft",
    "ScoreAccess",
    "StartImages",
    "SurrogateFailed",
    "TargetModel",
]
