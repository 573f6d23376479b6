"""Short targeted ascents towards the nearest classes."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.gradient.apgd import ascend, nearest_classes, towards_each
from robustassay.attacks.gradient.pma import ascend_along_cosine
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf
from robustassay.threat.losses import dlr_towards


@final
@register("attack", "nearest")
@dataclass(frozen=True)
class Nearest(Attack[GradientAccess]):
    """MALT-ordered targeted APGD with cosine steps: targeted DLR towards the classes nearest in a linear model.

    The order of the classes is that of MALT (Melamed et al. 2024, arXiv:2407.02240); the short schedule is our own.
    Under L1 the steps are those of Auto-PGD: sparse, and within larger balls first.
    """

    info = AttackInfo(
        papers=("2407.02240",),
        formula="the steps of pma on the loss of apgd-t, towards the `targets` classes of least\n"
        "(z_y - z_t) / |grad z_y - grad z_t|_dual at x0; under L1 the steps of apgd",
    )
    access = GradientAccess
    norms = (LInf, L2, L1)

    steps: int = 40
    targets: int = 3

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Ascend towards all classes at once."""

        def ascend_to(many: GradientAccess, target: Tensor) -> Tensor:
            if isinstance(many.ball.norm, L1):
                return ascend(many, self.steps, dlr_towards, target)
            return ascend_along_cosine(many, many.ball.sample(many.rng), self.steps, dlr_towards, target)

        return towards_each(view, nearest_classes(view, x0, self.targets), ascend_to)
