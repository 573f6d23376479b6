"""The table of `assay run` at the top of a report: what PGD says, what assay says, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from robustassay.eps import format_norm
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

    @property
    def threat(self) -> str:
        """The threat as pages write it."""
        norm, _, eps = self.found.threat.partition(" ")
        return f"{format_norm(norm)} {eps}"

    @property
    def repeated(self) -> tuple[tuple[str, str], ...]:
        """The lines whose model an earlier line has too: their label, and that of the earlier line."""
        first = chosen_labels(self.found)
        return tuple((row.label, first[row.model]) for row in self.found.rows if row.label != first[row.model])


def chosen_labels(found: Showcase) -> dict[str, str]:
    """Return the label that people chose for each model, by its name: that of the first line about it."""
    labels: dict[str, str] = {}
    for row in found.rows:
        labels.setdefault(row.model, row.label)
    return labels


def find_showcase(places: Sequence[Path]) -> tuple[Path, Showcase] | None:
    """Read the first showcase in one of the folders of a report; None where there is none."""
    found = ((place, read_showcase(place)) for place in places)
    return next(((place, one) for place, one in found if one is not None), None)


def link_runs(place: Path, found: Showcase, attacks: Sequence[AttackSummary]) -> ShownCase:
    """Link the lines of a showcase, read from a folder, to the pages of their runs."""
    pages = {store.path.resolve(): attack.run.page for attack in attacks for store in attack.run.stores}
    return ShownCase(found, tuple(_row(place, row, pages) for row in found.rows))


def _row(place: Path, row: ShowcaseRow, pages: dict[Path, str]) -> ShownRow:
    runs = [(place / run).resolve() for run in row.runs]
    known = [pages[run] for run in runs if run in pages]
    return ShownRow(row, known[-1] if known else None)
