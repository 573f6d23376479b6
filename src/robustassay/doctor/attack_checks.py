"""Whether a plain attack, PGD on cross-entropy, does what every attack must on a model that hides nothing."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, final

from torch import Tensor

from robustassay.doctor.indicator import Finding
from robustassay.doctor.probe_set import Climb, Patient

STEPS: Final = 20
REL_STEP: Final = 0.1

FACTORS: Final = (0.5, 2.0, 4.0)
"""Radii that are tried besides the one asked for, as multiples of it."""

SHORT: Final = 10
"""Steps at these radii; each is so much longer."""

SILENT: Final = 0.25
"""Part of the images on which an attack may pass a point that breaks them and end at one that does not."""

LATE: Final = 5
UNFINISHED: Final = 0.1
"""Part of a clean margin that the last steps may still gain on the images left standing."""

UNREACHED: Final = 0.1
"""Part of the images that may withstand an attack without bounds."""

RISE: Final = 0.1
"""Part of the images by which a larger radius may do worse than a smaller one."""


@final
@dataclass(frozen=True)
class Search:
    """The climbs of one plain attack, at the radius asked for, at others, and without bounds."""

    patient: Patient
    main: Climb
    fell: dict[float, Tensor]  # by factor
    unbounded: Tensor

    @classmethod
    def of(cls, patient: Patient) -> "Search":
        """Climb everywhere; an image that is broken within a radius is broken within all larger ones."""
        eps = patient.norm.eps
        main = patient.climb(eps, STEPS, REL_STEP)
        fell = {1.0: main.fell}
        for factor in FACTORS:
            fell[factor] = patient.climb(min(factor * eps, patient.across()), SHORT, 2 * REL_STEP).fell
        unbounded = patient.climb(patient.across(), SHORT, 2 * REL_STEP).fell
        return cls(patient, main, dict(sorted(fell.items())), unbounded)

    @property
    def standing(self) -> Tensor:
        """Say which images the attack leaves standing at the radius asked for."""
        return ~self.main.fell

    def silent_success(self) -> Finding:
        """Count the images that were broken on the way and not at the end."""
        lost = self.main.fell & ~self.main.reached[-1]
        return Finding(
            "silent success",
            float(lost.float().mean()),
            SILENT,
            f"{int(lost.sum())} of {len(lost)} images are broken on the way and not at the end of a plain attack",
            ("eot", "smoothing"),
        )

    def incomplete(self) -> Finding:
        """Ask how much the last steps still gained where the attack failed."""
        lowest, standing = self.main.lowest, self.standing
        gained = (lowest[-1 - LATE] - lowest[-1])[standing] / self.patient.clean[standing].clamp(min=1e-12)
        value = float(gained.median()) if len(gained) else 0.0
        return Finding(
            "incomplete optimisation",
            value,
            UNFINISHED,
            f"the last {LATE} of {STEPS} steps still took {value:.1%} of the clean margin of a typical image left "
            "standing",
            ("steps",),
        )

    def fails_unbounded(self) -> Finding:
        """Count the images that stand though any image is allowed."""
        left = float((~self.unbounded).float().mean())
        return Finding(
            "unbounded attack fails",
            left,
            UNREACHED,
            f"{int((~self.unbounded).sum())} of {len(self.unbounded)} images withstand an attack that may change them "
            "at will",
            ("bpda", "loss", "smoothing", "square", "transfer"),
        )

    def not_falling(self) -> Finding:
        """Compare the radii: the accuracy must fall as they grow, and end well below where it began."""
        shares = [float((~fell).float().mean()) for fell in self.fell.values()]
        rises = [later - earlier for earlier, later in pairwise(shares)]
        told = ", ".join(f"{share:.0%} at {factor:g} eps" for factor, share in zip(self.fell, shares, strict=True))
        flat = shares[-1] >= 1 - RISE
        return Finding(
            "accuracy not falling with eps",
            max(*rises, 1.0 if flat else 0.0),
            RISE,
            f"a plain attack leaves {told}",
            ("bpda", "loss", "smoothing", "square", "transfer"),
        )
