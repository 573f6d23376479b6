"""The seventh part of the collection: families that no other part has, by authors who had not read the doctor."""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.seventh import (
    honest_networks,
    honest_wrappers,
    masked_kernels,
    masked_published,
    masked_services,
)


def entries() -> list[Entry]:
    """Return the models of the seventh part."""
    files = (masked_published, masked_services, masked_kernels, honest_networks, honest_wrappers)
    return [replace(entry, apart="seventh") for file in files for entry in file.entries()]
