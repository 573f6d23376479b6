"""The ninth part of the collection: honest models of families that no other part has, by two further authors.

Neither had read the doctor. Those of the first author (`a`) are of unusual design; those of the second (`b`) are
ordinary and slightly odd classifiers, as strangers bring them.
"""

from dataclasses import replace

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.ninth.a import ENTRIES_A
from benchmarks.model_collection.ninth.b import ENTRIES_B


def entries() -> list[Entry]:
    """Return the models of the ninth part."""
    return [replace(entry, apart="ninth") for entry in (*ENTRIES_A, *ENTRIES_B)]
