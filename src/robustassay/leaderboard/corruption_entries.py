"""Entries for common corruptions: the mean accuracy over all kinds and severities, from predictions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from robustassay.analysis.corruptions import CLEAN, mean_accuracy
from robustassay.analysis.rates import Rate
from robustassay.data.corruptions import corruption_grid
from robustassay.errors import BadData
from robustassay.evaluation.corruption_records import FILE, CorruptionRecords
from robustassay.leaderboard.card import EntryCard
from robustassay.leaderboard.entry import FAMILY, Accuracy, BoardThreat, Entry
from robustassay.leaderboard.model_cards import card_of_model

BY: Final = "mean over corruptions"
CELLS: Final = frozenset((spec.kind, spec.severity) for spec in corruption_grid())


def corruption_files(places: Sequence[Path]) -> Iterator[Path]:
    """Find the files of predictions under corruptions in some folders and below them, each once."""
    found = {path.resolve() for place in places if place.is_dir() for path in place.rglob(FILE)}
    yield from sorted(found)


def read_corruption_entry(path: Path) -> Entry:
    """Make the entry of one file."""
    records = CorruptionRecords.read(path)
    return corruption_entry(card_of_model(records.model), records.frame, records.data)


def corruption_entry(card: EntryCard, predictions: pd.DataFrame, data: str) -> Entry:
    """Make an entry of the predictions of one model: kind, severity, sample_id and correct.

    As RobustBench does, the score is the plain mean over the 75 combinations of kind and severity; all are needed.
    """
    frame = predictions.assign(model=card.name)
    corrupted, clean = frame[frame["kind"] != CLEAN], frame[frame["kind"] == CLEAN]
    have = set(zip(corrupted["kind"], corrupted["severity"], strict=True))
    if have != CELLS or not len(clean):
        raise BadData(
            f"{card.name}: {len(have & CELLS)} of {len(CELLS)} corruptions and {len(clean)} clean predictions are "
            "there: run `assay corruptions` without --kind and --files."
        )
    if corrupted.groupby(["kind", "severity"]).size().nunique() > 1:
        raise BadData(f"{card.name}: some corruptions have more images than others: run the same command again.")
    mean = mean_accuracy(frame).iloc[0]
    samples = corrupted["sample_id"].nunique()
    robust = Accuracy(float(mean["accuracy"]), BY, float(mean["low"]), float(mean["high"]), samples)
    return Entry(
        card=card,
        threat=BoardThreat(FAMILY.get(data, data), "corruptions", None),
        kind="measured",
        clean=Accuracy.of(Rate(int(clean["correct"].sum()), len(clean)), "no corruption"),
        robust=robust,
        best_known=robust,
    )
