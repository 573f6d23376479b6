"""What a test of a claim returns: verdict, published number, ours, and reasons."""

from dataclasses import dataclass
from typing import Final, final

from robustassay.studies.liu2017.comparisons import FEWEST, Difference
from robustassay.studies.page import Finding, Verdict

RARE: Final = 0.1
"""The limit of "almost never" and "no difference": the paper's rates of targeted transfer are at most 5 %, 10 % in the
top 5."""


def seldom(classes: int) -> float:
    """Return the limit of "almost never" for a target label: what chance gives among few classes is added."""
    return RARE + 1 / (classes - 1)


def read_as(words: str, classes: int) -> str:
    """Say how words of the paper about a target label are read."""
    limit = f"{RARE:.0%}" if seldom(classes) < RARE + 0.005 else f"{seldom(classes):.0%}: {RARE:.0%}, and chance"
    return f"'{words}' is read as below {limit}"


@final
@dataclass(frozen=True)
class Judgement:
    """The answer to one claim."""

    verdict: Verdict
    published: str
    measured: str | None
    because: str
    reasons: list[str]

    def finding(self, number: int, claim: str) -> Finding:
        """Make it a finding of the page."""
        return Finding(
            number, claim, self.verdict, tuple(self.reasons), self.published, self.measured, because=self.because
        )


def not_measured(published: str, why: str) -> Judgement:
    """Say that a claim was not tested."""
    return Judgement("cannot be said", published, None, why, [f"{why[0].upper()}{why[1:]}."])


def below(found: Difference, limit: float) -> Verdict:
    """Whether a mean rate lies below a limit."""
    if found.images < FEWEST:
        return "cannot be said"
    return "holds" if found.high < limit else "does not hold" if found.low > limit else "cannot be said"
