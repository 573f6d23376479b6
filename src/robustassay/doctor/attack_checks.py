"""Checks that a plain attack, PGD on cross-entropy, behaves as it does on a model without gradient masking."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, final

from torch import Tensor

from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.probe_set import AscentTrace, ProbeSet
from robustassay.threat.losses import dlr

STEPS: Final = 20
REL_STEP: Final = 0.1

FACTORS: Final = (0.5, 2.0, 4.0)
"""Further radii to attack at, as multiples of the radius of the threat."""

FEW_STEPS: Final = 10
"""Steps at these radii; each step is twice as long."""

MAX_SILENT: Final = 0.25
"""Fraction of images that may be broken during the attack but not at its last point."""

FINAL_STEPS: Final = 5
FINAL_GAIN: Final = 0.1
"""Fraction of the clean margin that the final steps may still gain."""

MAX_GAINING: Final = 0.5
"""Fraction of the unbroken images on which they may gain more; they may always do so on one image.

More is a weak sign: on an honest network too, a short attack may still be on its way.
"""

MAX_UNREACHED: Final = 0.2
"""Fraction of images that may withstand an unbounded attack."""

KIND: Final = "plain attack"

MAX_RISE: Final = 0.1
"""Fraction of images by which accuracy may rise from one radius to the next larger one."""

FALLING: Final = 0.5
"""Part of the clean margin, at the largest of these radii, below which accuracy is on its way down at larger ones."""


@final
@dataclass(frozen=True)
class PlainAttack:
    """The same plain attack at the radius of the threat, at other radii, and unbounded."""

    probes: ProbeSet
    main: AscentTrace
    broken: dict[float, Tensor]  # by factor
    unbounded: Tensor
    left_at_largest: Tensor  # part of the clean margin that the largest of these radii leaves

    @classmethod
    def run(cls, probes: ProbeSet) -> "PlainAttack":
        """Attack the probe set at all radii."""
        eps = probes.norm.eps
        main = probes.ascend(eps, STEPS, REL_STEP)
        broken = {1.0: main.broken}
        for factor in FACTORS:
            ascent = probes.ascend(min(factor * eps, probes.diameter()), FEW_STEPS, 2 * REL_STEP)
            broken[factor] = ascent.broken
        left = ascent.lowest[-1] / probes.clean.clamp(min=1e-12)
        return cls(probes, main, dict(sorted(broken.items())), _broken_unbounded(probes), left)

    @property
    def unbroken(self) -> Tensor:
        """Images that the attack does not break at the radius of the threat."""
        return ~self.main.broken

    def silent_success(self) -> IndicatorResult:
        """Count the images that were broken during the attack but not at its last point."""
        lost = self.main.broken & ~self.main.reached[-1]
        return IndicatorResult(
            "silent success",
            float(lost.float().mean()),
            MAX_SILENT,
            f"{int(lost.sum())} of {len(lost)} images are broken during a plain attack but not at its last point",
            ("eot", "smoothing"),
            weak_limit=MAX_SILENT / 2,
            kind=KIND,
        )

    def incomplete(self) -> IndicatorResult:
        """Measure how much the final steps still gained where the attack failed."""
        lowest, unbroken = self.main.lowest, self.unbroken
        gained = (lowest[-1 - FINAL_STEPS] - lowest[-1])[unbroken] / self.probes.clean[unbroken].clamp(min=1e-12)
        gaining = gained > FINAL_GAIN
        return IndicatorResult(
            "incomplete optimisation",
            float(gaining.float().mean()) if len(gaining) else 0.0,
            1.0,
            f"the last {FINAL_STEPS} of {STEPS} steps still gained {FINAL_GAIN:.0%} of the clean margin or more at "
            f"{int(gaining.sum())} of the {len(gaining)} images that are not broken",
            ("steps",),
            weak_limit=max(MAX_GAINING, 1 / max(1, len(gaining))),
            kind=KIND,
        )

    def fails_unbounded(self) -> IndicatorResult:
        """Count the images that withstand an unbounded attack."""
        left = float((~self.unbounded).float().mean())
        return IndicatorResult(
            "unbounded attack fails",
            left,
            MAX_UNREACHED,
            f"{int((~self.unbounded).sum())} of {len(self.unbounded)} images withstand an unbounded attack",
            ("bpda", "loss", "smoothing", "square", "transfer"),
            weak_limit=0.0,
            kind=KIND,
        )

    def not_falling(self) -> IndicatorResult:
        """Check that accuracy falls as the radius grows, or that margins do, so that it falls at larger radii."""
        shares = [float((~broken).float().mean()) for broken in self.broken.values()]
        rises = [later - earlier for earlier, later in pairwise(shares)]
        listed = ", ".join(f"{share:.0%} at {factor:g} eps" for factor, share in zip(self.broken, shares, strict=True))
        left = float(self.left_at_largest.median())
        flat = shares[-1] >= 1 - MAX_RISE and left > FALLING
        return IndicatorResult(
            "accuracy not falling with eps",
            max(*rises, 1.0 if flat else 0.0),
            MAX_RISE,
            f"accuracy under a plain attack: {listed}, where {max(left, 0):.0%} of the clean margin is left (median)",
            ("bpda", "loss", "smoothing", "square", "transfer"),
            kind=KIND,
        )


def _broken_unbounded(probes: ProbeSet) -> Tensor:
    """Say which images an unbounded attack breaks, on cross-entropy or on a loss that the scale does not change."""
    broken = probes.ascend(probes.diameter(), FEW_STEPS, 2 * REL_STEP).broken
    if not broken.all():
        left = (~broken).nonzero().squeeze(1)
        broken[left] = probes.among(~broken).ascend(probes.diameter(), FEW_STEPS, 2 * REL_STEP, dlr).broken
    return broken
