"""The cross-check of an evaluation: whether attacks through other gradients break samples that it left unbroken."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

CROSS_CHECK: Final = "cross_check"
"""Manifest key of the cross-check; the store keeps it in a file beside the manifest."""

CROSS_CHECK_FLAG: Final = "cross-check"


@final
@dataclass(frozen=True)
class CrossCheck:
    """Unbroken samples that were attacked through inner values, other gradients or other attacks, and those that broke.

    A sample that breaks is a verified adversarial example: the robust accuracy is too high. `how` names what
    broke them; `other_kind` says that it was another attack on the model itself. `not_examined` says why there was no
    check.
    """

    asked: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    how: str = ""
    not_examined: str = ""
    seconds: float = 0.0
    other_kind: bool = False

    @property
    def passed(self) -> bool:
        """Whether no sample broke."""
        return not self.broken

    def among(self, unbroken: Collection[str]) -> "CrossCheck":
        """Return the same with those of the broken samples that no other attack broke."""
        return replace(self, broken=tuple(sample for sample in self.broken if sample in unbroken))

    @property
    def flags(self) -> dict[str, str]:
        """A flag if a sample broke."""
        if self.passed:
            return {}
        return {
            CROSS_CHECK_FLAG: f"Short attacks with {self.how} break {self.short} samples that were left unbroken, so "
            f"the robust accuracy is too high: {self.advice} attacks all samples in this way."
        }

    @property
    def advice(self) -> str:
        """The option that attacks all samples like this."""
        return "--confirm" if self.other_kind else "--adaptive auto"

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
            "other_kind": self.other_kind,
        }

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "CrossCheck":
        """Read the cross-check of a run; a run without one broke nothing."""
        entry = manifest.get(CROSS_CHECK)
        if not isinstance(entry, Mapping):
            return cls()
        asked, broken = (tuple(map(str, entry.get(key, ()))) for key in ("asked", "broken"))
        how, reason = (str(entry.get(key, "")) for key in ("how", "not_examined"))
        return cls(asked, broken, how, reason, float(entry.get("seconds", 0.0)), entry.get("other_kind") is True)


def first_failed(manifests: Iterable[Mapping[str, Any]], unbroken: Collection[str] | None = None) -> CrossCheck:
    """Return the first cross-check of several runs that broke a sample which is still unbroken, or the first of all.

    A sample that a later attack broke speaks no longer against the worst case of all runs. Without `unbroken`, nothing
    is known of later attacks.
    """
    made = [CrossCheck.of(manifest) for manifest in manifests]
    left = made if unbroken is None else [one.among(unbroken) for one in made]
    return next((one for one in left if not one.passed), left[0] if left else CrossCheck())
