"""The second part of the collection: families that neither half has, written after the doctor was tuned."""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.second import (
    honest_trained,
    honest_variants,
    masks_backward,
    masks_pixels,
    masks_scores,
    masks_trained,
)


def entries() -> list[Entry]:
    """Return the models of the second part."""
    files = (masks_pixels, masks_scores, masks_backward, masks_trained, honest_variants, honest_trained)
    return [replace(entry, apart="second") for file in files for entry in file.entries()]
