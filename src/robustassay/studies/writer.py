"""Writes a study's folder: `study.md`, every table as CSV, every figure as PNG."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, final

from robustassay.errors import StoreFailed
from robustassay.printable import cell
from robustassay.studies.page import Figure, Finding, Setup, Table, findings_table, markdown_rows
from robustassay.studies.provenance import NOTHING_KNOWN, Provenance
from robustassay.studies.study import M, Study

Draw = Callable[[Figure, Path], None]

PER_ROW: Final = 2
"""Figures side by side: more are too small to read."""
PAGE: Final = "study.md"

DIGITS: Final = 6
"""Significant digits of numbers in CSV files: a rate of 100,000 images has no more."""

WHOLE: Final = 10.0**DIGITS
"""From here on numbers are counts, of parameters or queries."""


@final
@dataclass(frozen=True, eq=False)
class StudyReport:
    """What was written."""

    findings: tuple[Finding, ...]
    tables: tuple[Table, ...] = field(repr=False)
    figures: tuple[Figure, ...] = field(repr=False)
    page: Path


def write(
    study: Study[M], measurements: M, out: Path, draw: Draw, provenance: Provenance = NOTHING_KNOWN
) -> StudyReport:
    """Write everything that the measurements can say.

    The page starts with the findings, published number beside ours; figures and tables follow. They replace those of an
    earlier page in this folder.
    """
    findings, tables, figures = study.findings(measurements), study.tables(measurements), study.figures(measurements)
    setup = study.setup(measurements)
    try:
        for folder, suffix in (("tables", "csv"), ("figures", "png")):
            (out / folder).mkdir(parents=True, exist_ok=True)
            for old in (out / folder).glob(f"*.{suffix}") if (out / PAGE).exists() else ():
                old.unlink()
        for table in (findings_table(findings), *tables):
            table.frame.map(_cell).to_csv(out / "tables" / f"{table.name}.csv", index=False)
        for figure in figures:
            draw(figure, out / "figures" / f"{figure.name}.png")
        study.attach(measurements, out)
        text = page(study.title, provenance.sentence, findings, setup, figures, tables)
        (out / PAGE).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error
    return StudyReport(tuple(findings), tuple(tables), tuple(figures), out / PAGE)


def _cell(value: Any) -> Any:
    """Return a value as a cell of a CSV file; no label of a service is taken for a formula."""
    return few_digits(value) if isinstance(value, float) else cell(value)


def few_digits(value: float) -> float:
    """Round a rate or a time; large numbers are counts."""
    return float(f"{value:.{DIGITS}g}") if abs(value) < WHOLE else value


def page(
    title: str,
    provenance: str,
    findings: Iterable[Finding],
    setup: Setup,
    figures: Iterable[Figure],
    tables: Iterable[Table],
) -> str:
    """Compose the page: findings, scale and deviations, figures, tables, the reasons of each verdict, flags."""
    found, shown, drawn = list(findings), list(tables), list(figures)
    table = findings_table(found)
    parts = [f"# {title}" + f", on {setup.dataset}" * bool(setup.dataset), ""]
    if found:
        parts += [*markdown_rows([table.heading, *table.lines]), ""]
    parts += [provenance, "", "## How it was measured", "", *setup.markdown]
    if drawn:
        parts += ["## Figures", ""]
    for group, members in groupby(drawn, key=lambda figure: figure.group or figure.name):
        parts += _figures(group, list(members))
    if shown:
        parts += [
            "## Tables",
            "",
            "Every table is also a CSV file in `tables/`, with all its numbers in six digits.",
            "",
        ]
        parts += [each.markdown for each in shown]
    if found:
        parts += ["## Reasons", "", "The numbers that each verdict rests on.", ""]
        parts += [finding.markdown.replace("## ", "### ", 1) for finding in found]
    if setup.flags:
        parts += ["## Flags of runs", "", *(f"- {line}" for line in setup.flags), ""]
    return "\n".join(parts)


def _figures(group: str, members: list[Figure]) -> list[str]:
    """Show one figure under its title, or several under that of their group, two side by side."""
    first = members[0]
    if not first.group:
        return [f"### {first.title}", "", f"![{first.title}](figures/{first.name}.png)", ""]
    parts = [f"### {group}", ""]
    for at in range(0, len(members), PER_ROW):
        own = members[at : at + PER_ROW]
        pictures = tuple(f"![{figure.title}](figures/{figure.name}.png)" for figure in own)
        parts += [*markdown_rows([tuple(figure.title for figure in own), pictures]), ""]
    return parts
