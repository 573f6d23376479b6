"""The eighth part of the collection: families that no other part has, by authors who had not read the doctor."""

from dataclasses import replace

from benchmarks.model_collection.eighth import (
    honest_algebra,
    honest_lessons,
    honest_maps,
    honest_scores,
    honest_sequences,
    honest_views,
    masked_answers,
    masked_memory,
    masked_networks,
    masked_slopes,
)
from benchmarks.model_collection.entry import Entry


def entries() -> list[Entry]:
    """Return the models of the eighth part."""
    files = (
        masked_slopes,
        masked_memory,
        masked_answers,
        masked_networks,
        honest_sequences,
        honest_algebra,
        honest_maps,
        honest_scores,
        honest_lessons,
        honest_views,
    )
    return [replace(entry, apart="eighth") for file in files for entry in file.entries()]
