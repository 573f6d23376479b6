"""The self-test of an evaluation: how many adversarial examples that are known to exist its attack found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from robustassay.analysis.rates import Rate

SELF_TEST: Final = "self_test"
"""Manifest key of the self-test; the store keeps it in a file beside the manifest."""

SELF_TEST_FLAG: Final = "self-test"

LIMIT: Final = 0.75
"""Share of planted examples that an attack must find; below it the robust accuracy is called an upper bound only."""


@final
@dataclass(frozen=True)
class SelfTest:
    """Which planted adversarial examples were found, by sample, and what the test cost.

    `not_examined` says why there was no test, or why a sample has no planted example.
    """

    found: Mapping[str, bool] = field(default_factory=dict)
    asked: tuple[str, ...] = ()  # the samples in which an example was to be planted
    not_examined: str = ""
    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> Rate:
        """How many planted examples were found."""
        return Rate(sum(self.found.values()), len(self.found))

    @property
    def examined(self) -> bool:
        """Whether at least one example was planted."""
        return bool(self.found)

    @property
    def passed(self) -> bool:
        """Whether enough of the planted examples were found."""
        return self.examined and self.rate.value >= LIMIT

    @property
    def summary(self) -> str:
        """The share found with its interval, or why there is none."""
        if not self.examined:
            return f"not examined ({self.not_examined or 'switched off'})"
        low, high = self.rate.interval()
        return f"{self.rate.count} of {self.rate.total} planted examples found (95 % interval {low:.0%} to {high:.0%})"

    @property
    def short(self) -> str:
        """The share found in few words."""
        return f"{self.rate.count} of {self.rate.total}" if self.examined else "not examined"

    @property
    def cost(self) -> str:
        """The passes and the time that it took."""
        return f"{self.forwards:,} forward and {self.backwards:,} backward passes, {self.seconds:.1f} s"

    @property
    def flags(self) -> dict[str, str]:
        """A flag if the test was not passed."""
        if not self.examined or self.passed:
            return {}
        return {
            SELF_TEST_FLAG: f"The attack found {self.rate.count} of {self.rate.total} adversarial examples that were "
            "planted in this model: at these settings it fails where success is possible, so the robust accuracy is "
            "an upper bound only; use a stronger attack, or look for masked gradients with the doctor."
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, the share with its interval included."""
        low, high = self.rate.interval()
        share = {"share": self.rate.value, "interval": [low, high], "passed": self.passed} if self.examined else {}
        return {
            "found": dict(self.found),
            "asked": list(self.asked),
            "planted": len(self.found),
            **share,
            "not_examined": self.not_examined,
            "forwards": self.forwards,
            "backwards": self.backwards,
            "seconds": round(self.seconds, 2),
        }

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "SelfTest":
        """Read the self-test of a run; a run without one was not examined."""
        entry = manifest.get(SELF_TEST)
        if not isinstance(entry, Mapping):
            return cls(not_examined="no self-test was made")
        found = {str(sample): bool(hit) for sample, hit in entry.get("found", {}).items()}
        asked = tuple(map(str, entry.get("asked", ())))
        return cls(found, asked, str(entry.get("not_examined", "")), *(entry.get(key, 0) for key in _COSTS))


_COSTS: Final = ("forwards", "backwards", "seconds")


def merge(tests: Iterable[SelfTest]) -> SelfTest:
    """Merge the self-tests of all attacks of an evaluation: an example counts as found if one of them found it."""
    made = list(tests)
    found: dict[str, bool] = {}
    for test in made:
        for sample, hit in test.found.items():
            found[sample] = found.get(sample, False) or hit
    why = "" if found else next((test.not_examined for test in made if test.not_examined), "")
    costs = [sum(getattr(test, key) for test in made) for key in _COSTS]
    asked = tuple(dict.fromkeys(sample for test in made for sample in test.asked))
    return SelfTest(found, asked, why, *costs)
