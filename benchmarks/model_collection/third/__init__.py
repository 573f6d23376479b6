"""The third part of the collection: masked models written before the remedies that followed the second part were run.

Their author knew how those remedies were meant to work, and had not run them on any of these models.
"""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.third import masks_codes, masks_draws, masks_votes


def entries() -> list[Entry]:
    """Return the models of the third part."""
    return [
        replace(entry, apart="third") for file in (masks_votes, masks_codes, masks_draws) for entry in file.entries()
    ]
