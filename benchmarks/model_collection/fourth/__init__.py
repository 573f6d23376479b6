"""The fourth part of the collection: families that no other part has, by an author who had not read the doctor."""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fourth import honest_networks, masks_aside, masks_fast, masks_leads


def entries() -> list[Entry]:
    """Return the models of the fourth part."""
    files = (masks_leads, masks_aside, masks_fast, honest_networks)
    return [replace(entry, apart="fourth") for file in files for entry in file.entries()]
