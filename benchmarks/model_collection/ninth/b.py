"""The honest models of the `b_` files of the ninth part."""

from typing import Final

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.ninth import b_filters, b_layers, b_lessons, b_tokens, b_wrappers

FILES: Final = (b_filters, b_tokens, b_layers, b_lessons, b_wrappers)
ENTRIES_B: Final[tuple[Entry, ...]] = tuple(entry for file in FILES for entry in file.entries())
