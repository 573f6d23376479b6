"""Express: AutoAttack's verdict at a fraction of its cost, and the samples that deserve a second look."""

from dataclasses import dataclass
from typing import Final, final

from torch import Tensor

from assay.attacks.apgd import APGDT
from assay.attacks.attack import Attack
from assay.attacks.cascade import run_stage
from assay.attacks.fab import FAB
from assay.attacks.nearest import Nearest
from assay.attacks.pma import PMA
from assay.attacks.square import Square
from assay.registry import register
from assay.target import WhiteBox
from assay.threat import L1, L2, LInf, Norm

# Parts of the clean margin that are left after a climb. Measured on five adversarially trained networks, 500 images
# each: of samples that fell later, the first climb had left 0.36 at most, and twenty targeted steps 0.02.
CLOSE: Final = 0.08
FAR: Final = 0.6
UNMOVED: Final = 0.95  # nothing was gained: a climb that failed, which says nothing of the sample

INSURED: Final = 1 / 8


@final
@register("attack", "express")
@dataclass(frozen=True)
class Express(Attack[WhiteBox]):
    """Spends its steps where they may decide: short climbs on all, long ones on the close; nothing to tune.

    A probability-margin climb; short climbs towards the nearest classes, but not where most of the margin is left;
    Auto-PGD towards the same classes where hardly any is; and, as an insurance against gradients that mislead, a
    little FAB and Square on one survivor in eight, drawn by the sample's own stream.
    """

    access = WhiteBox
    norms = (LInf, L2, L1)
    tries_without_gradients = True

    def __call__(self, view: WhiteBox, x0: Tensor) -> Tensor:
        """Run the stages one after the other; a row leaves with the first success."""
        run_stage(view, "pma", PMA(steps=20))
        left = view.margin_left()
        run_stage(view, "nearest", Nearest(steps=20), on=(left < FAR) | (left > UNMOVED))
        run_stage(view, "apgd-t", APGDT(steps=100, targets=3, order="malt"), on=view.margin_left() < CLOSE)
        insured = view.pin(view.rng.uniform(1).squeeze(1) < INSURED)
        run_stage(view, "fab-t", FAB(steps=10, targets=3), on=insured())
        run_stage(view, "square", Square(steps=200), on=insured())
        return view.ball.centre

    def stage_names(self, norm: Norm) -> list[str]:
        """Name the stages."""
        return ["pma", "nearest", "apgd-t", "fab-t", "square"]
