"""The cross-check of an evaluation: whether attacks through other gradients break samples that it left unbroken."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

CROSS_CHECK: Final = "cross_check"
"""Manifest key of the cross-check; the store keeps it in a file beside the manifest."""

CROSS_CHECK_FLAG: Final = "cross-check"


@final
@dataclass(frozen=True)
class CrossCheck:
    """Unbroken samples that were attacked through inner scores or repaired gradients, and those that broke.

    A sample that breaks is a verified adversarial example: the robust accuracy is too high. `how` names the gradients
    that broke them. `not_examined` says why there was no check.
    """

    asked: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    how: str = ""
    not_examined: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no sample broke."""
        return not self.broken

    @property
    def flags(self) -> dict[str, str]:
        """A flag if a sample broke."""
        if self.passed:
            return {}
        return {
            CROSS_CHECK_FLAG: f"Short attacks with {self.how} break {self.short} samples that were left unbroken, so "
            "the robust accuracy is too high: --adaptive auto attacks all samples in this way."
        }

    @property
    def short(self) -> str:
        """The samples that broke, in few words."""
        return f"{len(self.broken)} of {len(self.asked)}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "asked": list(self.asked),
            "broken": list(self.broken),
            "how": self.how,
            "not_examined": self.not_examined,
            "seconds": round(self.seconds, 2),
        }

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "CrossCheck":
        """Read the cross-check of a run; a run without one broke nothing."""
        entry = manifest.get(CROSS_CHECK)
        if not isinstance(entry, Mapping):
            return cls()
        asked, broken = (tuple(map(str, entry.get(key, ()))) for key in ("asked", "broken"))
        how, reason = (str(entry.get(key, "")) for key in ("how", "not_examined"))
        return cls(asked, broken, how, reason, float(entry.get("seconds", 0.0)))


def first_failed(checks: Iterable[CrossCheck]) -> CrossCheck:
    """Return the first of several cross-checks that broke a sample, or the first of all; an empty one of none."""
    made = list(checks)
    return next((one for one in made if not one.passed), made[0] if made else CrossCheck())
