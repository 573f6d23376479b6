"""AutoAttack: a parameter-free sequence, each attack on the samples that survived those before it."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo, Calls
from robustassay.attacks.common.sequence import Stages, run_stages
from robustassay.attacks.gradient.apgd import APGD, APGDT
from robustassay.attacks.nearest.fab import FAB
from robustassay.attacks.score.square import Square
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf, Norm


@final
@register("attack", "autoattack")
@dataclass(frozen=True)
class AutoAttack(Attack[GradientAccess]):
    """APGD, targeted APGD, FAB and Square in turn (Croce & Hein 2020, arXiv:2003.01690).

    The defaults are the authors' budgets. "plus" adds APGD on DLR, untargeted FAB and more restarts. "rand" is for
    randomised models: only APGD, on gradients averaged over draws.
    """

    info = AttackInfo(
        papers=("2003.01690",),
        formula="apgd on L, then apgd-t, fab and square, each on the samples that those before did not break",
        reference="fra31/auto-attack",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)
    can_target = False
    tries_without_gradients = True

    version: str = "standard"
    """standard, plus (more attacks and restarts) or rand (for random models)."""
    steps: int = 100
    """Iterations of each gradient attack."""
    queries: int = 5000
    """Queries of Square per sample, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version not in ("standard", "plus", "rand"):
            raise BadRequest(f"AutoAttack: version must be standard, plus or rand, not {self.version!r}.")

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Run the stages in sequence; a row leaves with its first success."""
        return run_stages(view, self.stages(view.ball.norm))

    def stages(self, norm: Norm) -> Stages:
        """List the attacks of this version, with the reference's budgets."""
        sparse, plus = isinstance(norm, L1), self.version == "plus"
        ce = "apgd-ce", APGD(self.steps, restarts=5 if plus or (sparse and self.version == "standard") else 1)
        dlr = "apgd-dlr", APGD(self.steps, restarts=5 if plus else 1, loss="dlr")
        towards = "apgd-t", APGDT(self.steps, targets=5 if sparse else 9)
        fab_towards, square = ("fab-t", FAB(self.steps)), ("square", Square(self.queries))
        if self.version == "rand":
            return ce, dlr
        if self.version == "standard":
            return ce, towards, fab_towards, square
        return ce, dlr, ("fab", FAB(self.steps, aim="any", starts=5)), square, towards, fab_towards

    def planned_passes(self, norm: Norm) -> int:
        """Add up the stages; a sample that no stage breaks takes them all."""
        return sum(stage.planned_passes(norm) or 0 for _, stage in self.stages(norm))

    def usual_calls(self, norm: Norm, rows: float) -> list[Calls]:
        """Return the calls of the stages, one after the other."""
        return [calls for _, stage in self.stages(norm) for calls in stage.usual_calls(norm, rows)]

    def stage_names(self, norm: Norm) -> list[str]:
        """Name the stages."""
        return [name for name, _ in self.stages(norm)]
