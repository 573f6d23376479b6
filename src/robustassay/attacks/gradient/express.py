"""Express: a fast cascade that gives AutoAttack's results at a fraction of its cost."""

from dataclasses import dataclass
from typing import Final, final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo, Calls
from robustassay.attacks.common.sequence import run_stage
from robustassay.attacks.gradient.apgd import APGD, APGDT
from robustassay.attacks.gradient.nearest import Nearest
from robustassay.attacks.gradient.pma import PMA
from robustassay.attacks.nearest.fab import FAB
from robustassay.attacks.score.square import Square
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf, Norm

UNMOVED: Final = 0.95
"""More of the clean margin is left: the ascent failed, and the margin does not show how far the boundary is."""

FALLING: Final = 2.0
"""A margin below this many times its decrease over the last stage may fall to a longer attack."""

CLOSEST: Final = 0.2
"""Under the long plan, a sample with less margin left is attacked from further starts and towards all classes.

At large radii, samples with a tenth of their margin left still fall to AutoAttack.
"""

FAR_STEPS: Final = 10
"""Steps of Auto-PGD on DLR, where PMA leaves most of the margin: DLR does not depend on the size of logits."""

MIDDLE: Final = 0.2
"""A sample with less than this part of its margin left meets Auto-PGD on the cross-entropy: the stages before follow
other losses, and may all end in one maximum. A sample of a VGG-11 with a sixth left fell to 40 steps under 15 of 16
seeds, to 25 steps under 12."""

CHECKED: Final = 1 / 8
"""The part of the unbroken samples that attacks without a gradient of the loss look at."""


@final
@dataclass(frozen=True)
class _Plan:
    """The lengths of the stages under a norm, and the parts of the clean margin below which they run."""

    nearest_steps: int
    far: float  # above, `nearest` is left out, and a short Auto-PGD on a loss without scale takes its place
    close: float  # below, Auto-PGD follows
    targets: int
    loss_steps: int  # of the Auto-PGD on the cross-entropy that follows that towards classes


# Measured on five adversarially trained networks under L∞, 500 images each: of samples broken later, the first stage
# had left 0.36 at most, and twenty targeted steps 0.02.
_SHORT: Final = _Plan(nearest_steps=20, far=0.6, close=0.08, targets=3, loss_steps=40)

# Under L1 twenty steps are far from converged: on a ResNet-20, a hundred reduced some margins from 0.45 of the clean
# one to below zero. In large balls, such as L∞ 0.3 on digits, models are less linear, and short ascents fail too.
_LONG: Final = _Plan(nearest_steps=40, far=0.9, close=0.5, targets=5, loss_steps=100)

LARGE: Final = {LInf: 0.1, L2: 1.5, L1: 0.0}
"""The radii above which the long plan holds."""


def _is_long(norm: Norm) -> bool:
    return norm.eps > LARGE[type(norm)]


@final
@register("attack", "express")
@dataclass(frozen=True)
class Express(Attack[GradientAccess]):
    """A fast cascade: short attacks on all samples, longer ones on those close to the boundary; no settings.

    First PMA; where it leaves most of the margin, a short Auto-PGD on DLR, which does not depend on the size of logits.
    Then `nearest`, except where most of the margin is still left. Then Auto-PGD towards the same classes and on the
    cross-entropy, where little margin is left or the last stage reduced it much; on the cross-entropy also where less
    than a fifth is left. Under L1, and at large radii, these are longer and run on more samples; where almost no margin
    is left, both are run again, from further starts and towards all classes. Last, against misleading gradients, a
    short FAB and Square on one unbroken sample in eight, drawn from the sample's own random stream.
    """

    info = AttackInfo(
        formula="pma (20 steps); apgd on dlr (10) where most of the margin is left;\n"
        "nearest (20) where less, or almost all, is left;\n"
        "apgd-t (100, 3 classes) at small or falling margins, apgd (40) at these and at middle ones;\n"
        "under L1 and at large radii: nearest (40), apgd-t (100, 5 classes) and apgd (100),\n"
        "at very small margins also apgd (100, 4 restarts) and apgd-t (100, 9 classes);\n"
        "fab (10) and square (200) on one unbroken sample in eight",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Run the stages in sequence; a row leaves with its first success."""
        long = _is_long(view.ball.norm)
        plan = _LONG if long else _SHORT
        run_stage(view, "pma", PMA(steps=20))
        run_stage(view, "apgd-dlr", APGD(steps=FAR_STEPS, loss="dlr"), on=view.margin_left() >= plan.far)
        left = view.margin_left()
        before = view.track(left)
        run_stage(view, "nearest", Nearest(plan.nearest_steps), on=(left < plan.far) | (left > UNMOVED))
        left = view.margin_left()
        is_promising = (left < plan.close) | (left < FALLING * (before() - left))
        promising, follow = view.track(is_promising), view.track(is_promising | (left < MIDDLE))
        run_stage(view, "apgd-t", APGDT(steps=100, targets=plan.targets, order="malt"), on=promising())
        run_stage(view, "apgd-ce", APGD(steps=plan.loss_steps), on=follow())
        if long:
            run_stage(view, "apgd-ce-again", APGD(steps=100, restarts=4), on=view.margin_left() < CLOSEST)
            run_stage(view, "apgd-t-all", APGDT(steps=100, targets=9), on=view.margin_left() < CLOSEST)
        checked = view.track(view.rng.uniform(1).squeeze(1) < CHECKED)
        run_stage(view, "fab-t", FAB(steps=10, targets=3), on=checked())
        run_stage(view, "square", Square(steps=200), on=checked())
        return view.ball.centre

    def planned_passes(self, norm: Norm) -> int:
        """Add up the stages; few samples take all of them."""
        plan = _LONG if _is_long(norm) else _SHORT
        ascents = 20 + FAR_STEPS + 3 * plan.nearest_steps + 100 * plan.targets + plan.loss_steps
        return ascents + (4 + 9) * 100 * _is_long(norm) + round((3 * 10 + 200) * CHECKED)

    def usual_calls(self, norm: Norm, rows: float) -> list[Calls]:
        """Return the calls of the stages; how many rows the later ones take was seen on the zoo, roughly."""
        plan = _LONG if _is_long(norm) else _SHORT
        calls = [
            Calls(20 + 3 * plan.nearest_steps, rows, True),
            Calls(FAR_STEPS, rows / 4, True),
            Calls(100 * plan.targets, rows / 10, True),
            Calls(plan.loss_steps, rows / (2 if _is_long(norm) else 6), True),
        ]
        if _is_long(norm):
            calls.append(Calls((4 + 9) * 100, rows / 8, True))
        return [*calls, Calls(3 * 10, CHECKED * rows, True), Calls(200, CHECKED * rows, False)]

    def stage_names(self, norm: Norm) -> list[str]:
        """Name the stages."""
        again = ["apgd-ce-again", "apgd-t-all"] if _is_long(norm) else []
        return ["pma", "apgd-dlr", "nearest", "apgd-t", "apgd-ce", *again, "fab-t", "square"]
