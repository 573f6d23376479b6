"""The fifth part of the collection: families that no other part has, by another author who had not read the doctor."""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fifth import honest_networks, masks_checks, masks_gates, masks_heads, masks_images


def entries() -> list[Entry]:
    """Return the models of the fifth part."""
    files = (masks_gates, masks_checks, masks_heads, masks_images, honest_networks)
    return [replace(entry, apart="fifth") for file in files for entry in file.entries()]
