"""The table of `assay run` at the top of a report: what PGD says, what assay says, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from robustassay.results.models import AttackSummary
from robustassay.studies.showcase import Showcase, ShowcaseRow, read_showcase


@final
@dataclass(frozen=True)
class ShownRow:
    """One line of the table, with the page of its strongest run where the report has it."""

    row: ShowcaseRow
    page: str | None


@final
@dataclass(frozen=True)
class ShownCase:
    """What `assay run` found, linked to the pages of its runs."""

    found: Showcase
    rows: tuple[ShownRow, ...]


def find_showcase(places: Sequence[Path], attacks: Sequence[AttackSummary]) -> ShownCase | None:
    """Read the first showcase in one of the folders of a report; None where there is none."""
    pages = {store.path.resolve(): attack.run.page for attack in attacks for store in attack.run.stores}
    for place in places:
        if (found := read_showcase(place)) is not None:
            return ShownCase(found, tuple(_row(place, row, pages) for row in found.rows))
    return None


def _row(place: Path, row: ShowcaseRow, pages: dict[Path, str]) -> ShownRow:
    runs = [(place / run).resolve() for run in row.runs]
    known = [pages[run] for run in runs if run in pages]
    return ShownRow(row, known[-1] if known else None)
