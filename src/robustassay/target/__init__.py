"""The only access to a model: what an attack may ask, and the ledger that counts its queries."""

from robustassay.target.access import DecisionAccess, NoRowsLeft, ScoreAccess
from robustassay.target.calls import Loss
from robustassay.target.comparison import relative_difference
from robustassay.target.ensemble_model import EnsembleModel, Join
from robustassay.target.environment import callers_environment, standard_environment
from robustassay.target.forward import call_module
from robustassay.target.gradient_access import GradientAccess
from robustassay.target.ledger import Ledger
from robustassay.target.local_model import LocalModel
from robustassay.target.nan_watch import NAN_GRADIENT
from robustassay.target.start_images import StartImages
from robustassay.target.support import check_supports
from robustassay.target.surrogate_model import SurrogateFailed, SurrogateModel
from robustassay.target.target_model import TargetModel

__all__ = [
    "NAN_GRADIENT",
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
    "SurrogateModel",
    "TargetModel",
    "call_module",
    "callers_environment",
    "check_supports",
    "relative_difference",
    "standard_environment",
]
