"""What the study's page is made of: analyses, leaderboards and findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Final, final

import pandas as pd

from robustassay.leaderboard import Board
from robustassay.leaderboard import write as write_boards
from robustassay.leaderboard.columns import HEADING, csv_rows, lines
from robustassay.names import slug
from robustassay.studies.analyses import Analysis
from robustassay.studies.analyses.model_measurements import ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.page import MISSING, Figure, Table
from robustassay.studies.robustbench2021.published_figures import published_figures, published_tables
from robustassay.studies.robustbench2021.settings import RobustBenchSettings
from robustassay.studies.task import Results

FIGURES: Final = {
    "time": "Figure 2",
    "shift": "Figure 3",
    "robust-shift": "Figure 10",
    "calibration": "Figure 4",
    "ood": "Figure 5",
    "fairness": "Figure 6",
    "privacy": "Figure 7",
    "smoothness": "appendix F",
    "transfer": "appendix F",
}
"""The paper's counterpart of each analysis."""

SHOWN: Final = 5
"""The published entries of a board that the page shows beside the measured ones; the CSV file has all."""


@final
@dataclass(frozen=True, eq=False)
class RobustBenchMeasurements:
    """The finished measurements, the analyses made of them, and the leaderboards."""

    setup: AnalysisSetup = field(repr=False)
    results: Results = field(repr=False)
    analyses: Mapping[str, Analysis] = field(repr=False)
    boards: tuple[Board, ...] = field(repr=False)
    problems: tuple[str, ...]  # runs that the leaderboard could not read
    settings: RobustBenchSettings
    left_out: Mapping[str, tuple[str, ...]]  # models without a finished measurement, by analysis

    @cached_property
    def measured(self) -> ModelMeasurements:
        """The models with a finished attack run and predictions."""
        own = tuple(model for model in self.setup.models if self.has(model))
        return ModelMeasurements(own, self.setup.datasets, self.setup.threat, self.results)

    def has(self, model: str) -> bool:
        """Say whether a model was attacked and queried."""
        return key("run", model) in self.results and key("predictions", model) in self.results


def tables(study: RobustBenchMeasurements) -> list[Table]:
    """Return the leaderboards, the tables of the published entries, and those of all analyses."""
    of_analyses = [table for analysis in study.analyses.values() for table in _tables(analysis)]
    return [*(_board_table(board) for board in study.boards), *published_tables(), *of_analyses]


def _board_table(board: Board) -> Table:
    """Show the measured entries and the best published ones; the file has all entries and columns."""
    kinds = [entry.kind for entry in board.entries]
    best = [at for at, kind in enumerate(kinds) if kind == "published"][:SHOWN]
    rows = [tuple(row) for row in lines(board)]
    shown = tuple(row for at, row in enumerate(rows) if kinds[at] == "measured" or at in best)
    title = f"Leaderboard: {board.threat}, {len(rows)} entries, {kinds.count('measured')} of them measured here"
    notes = (f"Shown are the measured entries and the {len(best)} best published ones; the CSV file has all.",)
    frame = pd.DataFrame([*csv_rows(board)])
    return Table(f"leaderboard-{slug(str(board.threat))}", title, tuple(HEADING), shown, frame, notes, printed=False)


def figures(study: RobustBenchMeasurements) -> list[Figure]:
    """Return the figures of the published entries and of all analyses."""
    of_analyses = [
        Figure(panel.name, panel.title, panel.content, f"{analysis.title} (as {FIGURES[analysis.name]})")
        for analysis in study.analyses.values()
        for panel in analysis.panels
    ]
    return [*published_figures(), *of_analyses]


def attach(study: RobustBenchMeasurements, out: Path) -> None:
    """Write the leaderboard's own folder."""
    write_boards(list(study.boards), out / "leaderboard", list(study.problems))


def _tables(analysis: Analysis) -> list[Table]:
    """Format the tables of an analysis; its sentences are below the first."""
    title = f"{analysis.title} (as {FIGURES[analysis.name]})"
    return [
        Table(
            name,
            title if at == 0 else f"{title}: {name}",
            tuple(str(column) for column in frame),
            tuple(tuple(_cell(value) for value in row) for row in frame.itertuples(index=False)) if at == 0 else (),
            frame,
            analysis.notes if at == 0 else (),
            printed=False,
        )
        for at, (name, frame) in enumerate(analysis.tables.items())
    ]


def _cell(value: object) -> str:
    if value is pd.NA or (isinstance(value, float) and isnan(value)):
        return MISSING
    return f"{value:.3f}" if isinstance(value, float) else str(value)
