"""Express: most of AutoAttack's verdict at a fraction of its cost."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from assay.attacks.attack import Attack
from assay.attacks.cascade import run_stages
from assay.attacks.nearest import Nearest
from assay.attacks.pma import PMA
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L1, L2, LInf


@final
@register("attack", "express")
@dataclass(frozen=True)
class Express(Attack[WhiteBox]):
    """A probability-margin climb, then short climbs towards the nearest classes; no parameters to tune."""

    access = WhiteBox
    norms = (LInf, L2, L1)

    def __call__(self, view: WhiteBox, x0: Tensor) -> Tensor:
        """Run the stages one after the other; a row leaves with the first success."""
        return run_stages(view, (("pma", PMA(steps=40)), ("nearest", Nearest())))
