"""The parts of a study's page: findings of the paper, scale and deviations, figures and tables."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

import pandas as pd

MISSING: Final = "–"
"""Shown where there is no number."""

Verdict = Literal["holds", "does not hold", "cannot be said"]
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
        """Format the table with its title, a link to its file, and its notes; it may show no lines."""
        title = f"**{self.title}** ([CSV](tables/{self.name}.csv))"
        if not self.lines:
            return f"{title}\n"
        rows = markdown_rows([self.heading, *self.lines])
        notes = [*(f"- {note}" for note in self.notes), ""] if self.notes else []
        return "\n".join([title, "", *rows, "", *notes])


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
    """A claim of the paper with its published number, ours, and whether it holds here.

    A verdict is about the whole claim: use `combined` for one of several parts. What a study cannot measure makes the
    verdict "cannot be said", and no verdict uses numbers that the page itself calls confounded.
    """

    number: int
    claim: str
    verdict: Verdict
    reasons: tuple[str, ...]
    published: str | None = None  # the number that the paper prints
    measured: str | None = None  # ours, with interval and n
    because: str = ""  # why this verdict, in a few words, for the table; `reasons` hold all numbers

    @property
    def markdown(self) -> str:
        """Format the finding as a section."""
        return "\n".join(
            [f"## {self.number}. {self.claim}", "", f"**{self.verdict[0].upper()}{self.verdict[1:]}.**", ""]
            + [f"- {reason}" for reason in self.reasons]
            + [""]
        )


def combined(verdicts: Collection[Verdict]) -> Verdict:
    """Return the verdict on a claim from those on its parts: it holds only if every part does."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and set(verdicts) == {"holds"} else "cannot be said"


@final
@dataclass(frozen=True)
class Scale:
    """One number of the study's scale, beside the paper's."""

    what: str  # such as "images" or "queries"
    here: str
    paper: str


@final
@dataclass(frozen=True)
class Setup:
    """How a study was measured. Every deviation from the paper is listed once, with its reason."""

    scale: tuple[Scale, ...] = ()
    deviations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # Markdown lines: how to read the numbers
    flags: tuple[str, ...] = ()  # of runs, one sentence each; shown at the end of the page
    dataset: str = ""  # named in the title, where a paper has pages for several

    @property
    def markdown(self) -> list[str]:
        """Format scale, deviations and notes."""
        parts: list[str] = []
        if self.scale:
            rows = [("scale", "here", "the paper"), *((one.what, one.here, one.paper) for one in self.scale)]
            parts += [*markdown_rows(rows), ""]
        if self.deviations:
            parts += ["Deviations from the paper:", "", *(f"- {line}" for line in self.deviations), ""]
        return [*parts, *self.notes, *([""] if self.notes else [])]


def numbered(answers: Iterable[tuple[str, Answer]]) -> list[Finding]:
    """Make findings of claims and their answers, in the order of the paper."""
    return [Finding(at, claim, verdict, tuple(why)) for at, (claim, (verdict, why)) in enumerate(answers, 1)]


def findings_table(findings: Iterable[Finding]) -> Table:
    """Tabulate findings: the claim, the published number, ours, and the verdict with its reason."""
    entries = [(one.number, one.claim, one.published, one.measured, one.verdict, one.because) for one in findings]
    lines = [
        (f"{number}. {claim}", published or MISSING, measured or MISSING, verdict, because or MISSING)
        for number, claim, published, measured, verdict, because in entries
    ]
    frame = pd.DataFrame(entries, columns=["number", "claim", "published", "measured", "verdict", "because"])
    heading = ("finding", "the paper", "here", "verdict", "because")
    return Table("findings", "Findings of the paper", heading, tuple(lines), frame)


def markdown_rows(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Format rows as a Markdown table; the first one is the heading."""
    heading, *lines = rows
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (heading, ("---",) * len(heading), *lines)]
    return [f"| {' | '.join(line)} |" for line in cells]


def comma_list(names: Iterable[str]) -> str:
    """Write a, b and c."""
    every = list(names)
    return " and ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


def either(numbers: Iterable[int]) -> str:
    """Write 1, 20 or 1,000."""
    every = [f"{number:,}" for number in numbers]
    return " or ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))
