"""What the study's page is made of: analyses, leaderboards and findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import pandas as pd

from robustassay.leaderboard import Board
from robustassay.leaderboard import write as write_boards
from robustassay.leaderboard.columns import HEADING, lines
from robustassay.names import slug
from robustassay.studies.analyses import Analysis
from robustassay.studies.analyses.model_measurements import ModelMeasurements, key
from robustassay.studies.page import Figure, Finding, Setup, Table
from robustassay.studies.robustbench2021.findings import findings_of
from robustassay.studies.robustbench2021.settings import RobustBenchSettings

FIGURES: Final = {
    "time": "Figure 2",
    "shift": "Figure 3",
    "calibration": "Figure 4",
    "ood": "Figure 5",
    "fairness": "Figure 6",
    "privacy": "Figure 7",
    "smoothness": "appendix F",
}
"""The paper's counterpart of each analysis."""

REQUIREMENTS: Final = {
    "privacy": "it needs images the models were trained on (--members)",
    "fairness": "it needs several images per class",
}
"""Why an analysis may be missing."""


@final
@dataclass(frozen=True, eq=False)
class RobustBenchMeasurements:
    """The finished measurements, the analyses made of them, and the leaderboards."""

    measured: ModelMeasurements
    analyses: Mapping[str, Analysis] = field(repr=False)
    boards: tuple[Board, ...] = field(repr=False)
    problems: tuple[str, ...]  # runs that the leaderboard could not read
    settings: RobustBenchSettings


def setup(study: RobustBenchMeasurements) -> Setup:
    """Describe the scale and the deviations."""
    measured = study.measured
    attacked = max(len(measured.results[key("run", model)].records) for model in measured.models)
    missing = [f"{figure}: {REQUIREMENTS[name]}." for name, figure in FIGURES.items() if name not in study.analyses]
    lines = [
        f"{len(measured.models)} models, {study.settings.description}; {attacked} images under attack "
        f"({study.settings.attack}). Deviations from the paper:",
        "",
        "- The models are those available here; none was trained with extra data.",
        "- Years and venues are those of the methods' papers.",
        "- Shifts are corruptions of the test images, and out-of-distribution images are made from them, unless others "
        "are named.",
        "- Temperatures are fitted on other images than they are evaluated on; the paper's variant is shown too.",
        *(f"- Left out, {sentence}" for sentence in missing),
        "",
        "Leaderboard per attack, with costs and flags: [leaderboard/board.md](leaderboard/board.md).",
    ]
    return Setup(notes=tuple(lines))


def findings(study: RobustBenchMeasurements) -> list[Finding]:
    """Return the seven findings."""
    return findings_of(study.measured, study.analyses)


def tables(study: RobustBenchMeasurements) -> list[Table]:
    """Return the leaderboards and the tables of all analyses."""
    made = []
    for board in study.boards:
        rows = [tuple(row) for row in lines(board)]
        frame = pd.DataFrame(rows, columns=list(HEADING))
        title = f"Leaderboard: {board.threat}, {len(board.entries)} entries"
        made.append(Table(f"leaderboard-{slug(str(board.threat))}", title, tuple(HEADING), tuple(rows), frame))
    return [*made, *(table for analysis in study.analyses.values() for table in _tables(analysis))]


def figures(study: RobustBenchMeasurements) -> list[Figure]:
    """Return the figures of all analyses."""
    return [
        Figure(panel.name, panel.title, panel.content, f"{analysis.title} (as {FIGURES[analysis.name]})")
        for analysis in study.analyses.values()
        for panel in analysis.panels
    ]


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
    return f"{value:.3f}" if isinstance(value, float) else str(value)
