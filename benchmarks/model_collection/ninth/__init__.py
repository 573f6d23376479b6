"""The ninth part of the collection: families that no other part has, by authors who had not read the doctor."""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.ninth.a import ENTRIES_A


def entries() -> list[Entry]:
    """Return the models of the ninth part."""
    return [replace(entry, apart="ninth") for entry in ENTRIES_A]
