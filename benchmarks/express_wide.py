"""A candidate for express: it goes on as long as further attacks lower a margin. Compared by `express_agreement`.

On networks without bumps, twenty steps of PMA reach the lowest margin that the later stages find, for nine samples in
ten. Where a later stage finds a lower one, the stages end in different maxima, and a longer attack may find another.
The rules below were written before the networks they are compared on were trained.
"""

from dataclasses import dataclass
from typing import Final, final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.sequence import run_stage
from robustassay.attacks.gradient import express
from robustassay.attacks.gradient.apgd import APGD, APGDT
from robustassay.attacks.gradient.nearest import Nearest
from robustassay.attacks.gradient.pma import PMA
from robustassay.attacks.nearest.fab import FAB
from robustassay.attacks.score.square import Square
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf

UNSETTLED: Final = 0.05
"""A sample whose margin the last stages lowered by this part or more meets Auto-PGD on the cross-entropy."""

FURTHER: Final = 0.15
"""A sample whose margin the last stages lowered by this part or more meets Auto-PGD towards classes."""

WIDE: Final = {False: 0.4, True: 0.6}
"""The part of the margin left below which all samples meet Auto-PGD on the cross-entropy: short and long plan."""


@final
@register("attack", "express-wide")
@dataclass(frozen=True)
class ExpressWide(Attack[GradientAccess]):
    """Express, and two stages on samples of middle margins and on those whose margins the stages before lowered."""

    info = AttackInfo(formula="express; then apgd and apgd-t where margins are middling, or fell from stage to stage")
    access = GradientAccess
    norms = (LInf, L2, L1)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Run the stages in sequence; a row leaves with its first success."""
        long = express._is_long(view.ball.norm)
        plan = express._LONG if long else express._SHORT
        run_stage(view, "pma", PMA(steps=20))
        far = view.margin_left() >= plan.far
        run_stage(view, "apgd-dlr", APGD(steps=express.FAR_STEPS, loss="dlr"), on=far)
        left = view.margin_left()
        before = view.track(left)
        on = (left < plan.far) | (left > express.UNMOVED)
        run_stage(view, "nearest", Nearest(plan.nearest_steps), on=on)
        left = view.margin_left()
        near = (left < plan.close) | (left < express.FALLING * (before() - left))
        promising, follow = view.track(near), view.track(near | (left < express.MIDDLE))
        run_stage(view, "apgd-t", APGDT(steps=100, targets=plan.targets, order="malt"), on=promising())
        run_stage(view, "apgd-ce", APGD(steps=plan.loss_steps), on=follow())
        left = view.margin_left()
        lowered = before() - left > UNSETTLED * before()
        run_stage(view, "apgd-ce-wide", APGD(steps=plan.loss_steps), on=~follow() & (lowered | (left < WIDE[long])))
        lowered = before() - view.margin_left() > FURTHER * before()
        targets = APGDT(steps=100, targets=plan.targets, order="malt")
        run_stage(view, "apgd-t-wide", targets, on=~promising() & lowered)
        if long:
            again = view.margin_left() < express.CLOSEST
            run_stage(view, "apgd-ce-again", APGD(steps=100, restarts=4), on=again)
            run_stage(view, "apgd-t-all", APGDT(steps=100, targets=9), on=view.margin_left() < express.CLOSEST)
        checked = view.track(view.rng.uniform(1).squeeze(1) < express.CHECKED)
        run_stage(view, "fab-t", FAB(steps=10, targets=3), on=checked())
        run_stage(view, "square", Square(steps=200), on=checked())
        return view.ball.centre
