"""Express: a fast cascade that gives AutoAttack's results at a fraction of its cost."""

from dataclasses import dataclass
from typing import Final, final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.sequence import run_stage
from robustassay.attacks.gradient.apgd import APGDT
from robustassay.attacks.gradient.nearest import Nearest
from robustassay.attacks.gradient.pma import PMA
from robustassay.attacks.nearest.fab import FAB
from robustassay.attacks.score.square import Square
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf, Norm

# Parts of the clean margin that are left after a stage. Measured on five adversarially trained networks, 500 images
# each: of samples broken later, the first stage had left 0.36 at most, and twenty targeted steps 0.02.
CLOSE: Final = 0.08
FAR: Final = 0.6
UNMOVED: Final = 0.95  # no progress at all: the ascent failed, and the margin does not show how far the boundary is

CHECKED: Final = 1 / 8


@final
@register("attack", "express")
@dataclass(frozen=True)
class Express(Attack[GradientAccess]):
    """A fast cascade: short attacks on all samples, longer ones on those close to the boundary; no settings.

    First PMA. Then `nearest`, except where most of the margin is left. Then Auto-PGD towards the same classes where
    little margin is left. Last, against misleading gradients, a short FAB and Square on one unbroken sample in eight,
    drawn from the sample's own random stream.
    """

    info = AttackInfo(
        formula="pma (20 steps); nearest (20) where it may decide; apgd-t (100, 3 classes) at small margins;\n"
        "fab (10) and square (200) on one unbroken sample in eight",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)
    tries_without_gradients = True

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Run the stages in sequence; a row leaves with its first success."""
        run_stage(view, "pma", PMA(steps=20))
        left = view.margin_left()
        run_stage(view, "nearest", Nearest(steps=20), on=(left < FAR) | (left > UNMOVED))
        run_stage(view, "apgd-t", APGDT(steps=100, targets=3, order="malt"), on=view.margin_left() < CLOSE)
        checked = view.track(view.rng.uniform(1).squeeze(1) < CHECKED)
        run_stage(view, "fab-t", FAB(steps=10, targets=3), on=checked())
        run_stage(view, "square", Square(steps=200), on=checked())
        return view.ball.centre

    def stage_names(self, norm: Norm) -> list[str]:
        """Name the stages."""
        return ["pma", "nearest", "apgd-t", "fab-t", "square"]
