"""What a test of a claim returns, and rules that several tests share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, final

from robustassay.analysis.rates import Rate
from robustassay.analysis.shift import Trend
from robustassay.studies.page import Finding, Verdict

LEVEL: Final = 0.05
M = TypeVar("M")


@final
@dataclass(frozen=True)
class Outcome:
    """The verdict on a claim, our number, why in a few words, and all numbers behind it."""

    verdict: Verdict
    measured: str | None
    because: str
    reasons: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Claim(Generic[M]):
    """A statement of the paper, what the paper prints for it, and its test."""

    text: str
    published: str
    test: Callable[[M], Outcome] = field(repr=False)


def unknown(because: str) -> Outcome:
    """Say that a claim cannot be tested here."""
    return Outcome("cannot be said", None, because, (f"{because[0].upper()}{because[1:]}.",))


def findings_of(claims: Iterable[Claim[M]], measured: M, first: int = 1) -> list[Finding]:
    """Test claims, and number them from `first`."""
    found = []
    for at, claim in enumerate(claims, first):
        outcome = claim.test(measured)
        found.append(
            Finding(
                at, claim.text, outcome.verdict, outcome.reasons, claim.published, outcome.measured, outcome.because
            )
        )
    return found


def rises(found: Trend) -> Verdict:
    """Decide whether one number rises with another over models."""
    if found.p_value >= LEVEL:
        return "cannot be said"
    return "holds" if found.value > 0 else "does not hold"


def percent(rate: Rate) -> str:
    """Write a rate with its counts and its interval."""
    low, high = rate.interval()
    return f"{rate.count} of {rate.total} ({rate.value:.0%}, {100 * low:.0f}–{100 * high:.0f})"


def trend_text(found: Trend) -> str:
    """Write a rank correlation with its p-value and the number of models."""
    return f"rank correlation {found.value:+.2f} (p = {found.p_value:.2g}, n = {found.models} models)"
