"""The first half of the ninth part: honest models only."""

from typing import Final

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.ninth import (
    a_answers,
    a_dynamics,
    a_layers,
    a_lessons,
    a_readers,
    a_views,
    a_wrappers,
)

ENTRIES_A: Final[tuple[Entry, ...]] = (
    *a_layers.entries(),
    *a_dynamics.entries(),
    *a_readers.entries(),
    *a_answers.entries(),
    *a_views.entries(),
    *a_lessons.entries(),
    *a_wrappers.entries(),
)
