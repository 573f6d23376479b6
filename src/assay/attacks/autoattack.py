"""AutoAttack: a parameter-free cascade, each attack on the samples that survived those before it."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from assay.attacks.apgd import APGD, APGDT
from assay.attacks.attack import Attack
from assay.attacks.cascade import Stages, run_stages
from assay.attacks.fab import FAB
from assay.attacks.square import Square
from assay.errors import BadRequest
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L1, L2, LInf


@final
@register("attack", "autoattack")
@dataclass(frozen=True)
class AutoAttack(Attack[WhiteBox]):
    """APGD on cross-entropy, targeted APGD, FAB and Square in turn (Croce & Hein 2020, arXiv:2003.01690).

    The defaults are the reference's budgets. "plus" adds APGD on DLR and more restarts; its untargeted FAB is not
    built, FAB here always aims.
    """

    access = WhiteBox
    norms = (LInf, L2, L1)
    can_target = False

    version: str = "standard"
    steps: int = 100
    queries: int = 5000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version not in ("standard", "plus"):
            raise BadRequest(f"AutoAttack: version must be standard or plus, not {self.version!r}.")

    def __call__(self, view: WhiteBox, x0: Tensor) -> Tensor:
        """Run the stages one after the other; a row leaves with the first success."""
        return run_stages(view, self.stages(view.ball.norm.name))

    def stages(self, norm: str) -> Stages:
        """List the attacks of this version, with the reference's budgets."""
        sparse = norm == "L1"
        ce = APGD(self.steps, restarts=5 if sparse or self.version == "plus" else 1)
        towards, fab = APGDT(self.steps, targets=5 if sparse else 9), FAB(self.steps)
        square = Square(self.queries)
        if self.version == "standard":
            return (("apgd-ce", ce), ("apgd-t", towards), ("fab-t", fab), ("square", square))
        dlr = APGD(self.steps, restarts=5, loss="dlr")
        return (("apgd-ce", ce), ("apgd-dlr", dlr), ("square", square), ("apgd-t", towards), ("fab-t", fab))
