"""Says before a run whether a target gives an attack what it needs."""

from typing import Any, Protocol

from robustassay.errors import BadRequest
from robustassay.target.access import ScoreAccess
from robustassay.target.gradient_access import GradientAccess
from robustassay.target.target_model import TargetModel


class NeedsAccess(Protocol):
    """The attributes of an attack that this check needs."""

    @property
    def access(self) -> Any:
        """The class of access that it is called with."""
        ...


def check_supports(target: TargetModel, attack: NeedsAccess) -> None:
    """Refuse an attack that asks for more than the target gives."""
    name = type(attack).__name__
    if issubclass(attack.access, GradientAccess) and not target.gives_gradients:
        raise BadRequest(
            f"{name} needs gradients, which a service does not show: use one on scores, such as "
            "square or nes, or on labels, such as boundary or hopskipjump."
        )
    if issubclass(attack.access, ScoreAccess) and not target.gives_scores:
        raise BadRequest(
            f"{name} needs scores, and the service shows labels only: use an attack on labels, such "
            "as boundary or hopskipjump."
        )
    sigma = getattr(attack, "sigma", None)
    if isinstance(sigma, float) and sigma < target.smallest_step:
        raise BadRequest(
            f"{name} probes with steps of sigma={sigma:g}, which 8 bits per value cannot show: use "
            "sigma=0.01 or so, or it would see no change and the service look robust."
        )
