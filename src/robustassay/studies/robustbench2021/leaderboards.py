"""The leaderboards of the study: published entries, and the measured ones among them."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from robustassay.analysis.corruptions import CLEAN
from robustassay.data.corruptions import corruption_grid
from robustassay.errors import AssayError
from robustassay.leaderboard import Board, Entry, boards, gather
from robustassay.leaderboard.card import EntryCard, card_of_zoo
from robustassay.leaderboard.corruption_entries import corruption_entry
from robustassay.leaderboard.published import NAME
from robustassay.studies.analyses.model_measurements import SHIFT, TEST, ModelMeasurements, card_of, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.runs import RunTask
from robustassay.studies.task import Results


def study_boards(
    setup: AnalysisSetup, runs: Sequence[RunTask], results: Results, published: Sequence[Path] = ()
) -> tuple[tuple[Board, ...], tuple[str, ...]]:
    """Return the boards on which a model of this study stands, and what could not be read."""
    finished = [task.folder for task in runs if task.key in results]
    gathered = gather(finished, (Path(NAME), *published))
    every = boards((*gathered.entries, *_corruption_entries(setup, results)))
    own = [board for board in every if any(entry.kind == "measured" for entry in board.entries)]
    return tuple(own), gathered.problems


def _corruption_entries(setup: AnalysisSetup, results: Results) -> list[Entry]:
    """Make entries of the predictions under all corruptions, where all are finished."""
    cells = {f"{SHIFT}{spec}": spec for spec in corruption_grid()}
    if not cells.keys() <= setup.datasets.keys():
        return []
    entries = []
    for model in setup.models:
        if all(key("predictions", model, name) in results for name in (TEST, *cells)):
            measured = ModelMeasurements((model,), setup.datasets, setup.threat, results)
            frames = [_frame(measured, model, name, spec.kind, spec.severity) for name, spec in cells.items()]
            frames.append(_frame(measured, model, TEST, CLEAN, 0))
            card = card_of(model)
            try:
                own = card_of_zoo(card) if card else EntryCard(name=model)
                entries.append(corruption_entry(own, pd.concat(frames), setup.datasets[TEST].name))
            except AssayError:
                continue  # a name that no card may have
    return entries


def _frame(measured: ModelMeasurements, model: str, data: str, kind: str, severity: int) -> pd.DataFrame:
    ids, right = measured.datasets[data].ids, measured.correct(model, data)
    return pd.DataFrame({"kind": kind, "severity": severity, "sample_id": ids[: len(right)], "correct": right})
