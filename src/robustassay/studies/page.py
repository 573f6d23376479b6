"""The parts of a study's page: findings of the paper, tables and figures."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

import pandas as pd

MISSING: Final = "–"
"""Shown where there is no number."""

Verdict = Literal["holds", "holds in part", "does not hold", "cannot be said"]
Answer = tuple[Verdict, list[str]]
"""A verdict on a claim, and the numbers behind it."""


@final
@dataclass(frozen=True)
class Table:
    """A table as shown, and all its numbers as a data frame."""

    name: str  # of its CSV file
    title: str
    heading: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()  # sentences below it
    printed: bool = True  # whether the terminal shows it too

    @property
    def markdown(self) -> str:
        """Format the table with its title and notes; one that shows no lines links to its file."""
        if not self.lines:
            return f"**{self.title}**: [{self.name}.csv](tables/{self.name}.csv)\n"
        rows = markdown_rows([self.heading, *self.lines])
        notes = [*(f"- {note}" for note in self.notes), ""] if self.notes else []
        return "\n".join([f"**{self.title}**", "", *rows, "", *notes])


@final
@dataclass(frozen=True, eq=False)
class Figure:
    """One image file; figures with the same `group` are shown side by side under it."""

    name: str  # of its file
    title: str
    content: Any = field(repr=False)  # what to draw; the report knows how, by its type
    group: str = ""


@final
@dataclass(frozen=True)
class Finding:
    """A claim of the paper with its published number, ours, and whether it holds here."""

    number: int
    claim: str
    verdict: Verdict
    reasons: tuple[str, ...]
    published: str | None = None  # the number that the paper prints
    measured: str | None = None  # ours, with interval and n

    @property
    def markdown(self) -> str:
        """Format the finding as a section."""
        return "\n".join(
            [f"## {self.number}. {self.claim}", "", f"**{self.verdict[0].upper()}{self.verdict[1:]}.**", ""]
            + [f"- {reason}" for reason in self.reasons]
            + [""]
        )


def numbered(answers: Iterable[tuple[str, Answer]]) -> list[Finding]:
    """Make findings of claims and their answers, in the order of the paper."""
    return [Finding(at, claim, verdict, tuple(why)) for at, (claim, (verdict, why)) in enumerate(answers, 1)]


def findings_table(findings: Iterable[Finding]) -> Table:
    """Tabulate findings: the claim, the published number, ours, and the verdict."""
    entries = [(one.number, one.claim, one.published, one.measured, one.verdict) for one in findings]
    lines = [
        (f"{number}. {claim}", published or MISSING, measured or MISSING, verdict)
        for number, claim, published, measured, verdict in entries
    ]
    frame = pd.DataFrame(entries, columns=["number", "claim", "published", "measured", "verdict"])
    return Table("findings", "Findings of the paper", ("finding", "the paper", "here", "verdict"), tuple(lines), frame)


def markdown_rows(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Format rows as a Markdown table; the first one is the heading."""
    heading, *lines = rows
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (heading, ("---",) * len(heading), *lines)]
    return [f"| {' | '.join(line)} |" for line in cells]


def comma_list(names: Iterable[str]) -> str:
    """Write a, b and c."""
    every = list(names)
    return " and ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))
