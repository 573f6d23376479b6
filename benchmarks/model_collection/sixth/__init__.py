"""The sixth part of the collection: families that no other part has, by authors who had not read the doctor."""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.sixth import (
    honest_layers,
    honest_wrappers,
    masks_deployed,
    masks_hidden,
    masks_published,
    masks_services,
    masks_slopes,
)


def entries() -> list[Entry]:
    """Return the models of the sixth part."""
    files = (
        masks_published,
        masks_deployed,
        masks_services,
        masks_slopes,
        masks_hidden,
        honest_layers,
        honest_wrappers,
    )
    return [replace(entry, apart="sixth") for file in files for entry in file.entries()]
