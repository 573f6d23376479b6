"""What every study's page is made of: tables, and findings of the paper that hold or do not."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, final

import pandas as pd

MISSING: Final = "–"
"""What a table shows where there is no number."""

Verdict = Literal["holds", "holds in part", "does not hold", "cannot be said"]
Answer = tuple[Verdict, list[str]]
"""Whether a claim holds here, and the numbers that say so."""


@final
@dataclass(frozen=True)
class Table:
    """A table as people read it, and all its numbers as a frame."""

    name: str
    title: str
    heading: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    frame: pd.DataFrame

    @property
    def markdown(self) -> str:
        """Write the table with its title."""
        rule = ["---"] * len(self.heading)
        cells = [[cell.replace("|", "\\|") for cell in line] for line in (self.heading, rule, *self.lines)]
        lines = [f"| {' | '.join(line)} |" for line in cells]
        return "\n".join([f"**{self.title}**", "", *lines, ""])


@final
@dataclass(frozen=True)
class Finding:
    """A claim of the paper, whether it holds here, and the numbers that say so."""

    number: int
    claim: str
    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """Write the finding as a section."""
        return "\n".join(
            [f"## {self.number}. {self.claim}", "", f"**{self.verdict[0].upper()}{self.verdict[1:]}.**", ""]
            + [f"- {reason}" for reason in self.reasons]
            + [""]
        )


def numbered(answers: Iterable[tuple[str, Answer]]) -> list[Finding]:
    """Make findings of claims and what was found of each, in the order of the paper."""
    return [Finding(at, claim, verdict, tuple(why)) for at, (claim, (verdict, why)) in enumerate(answers, 1)]
