"""A collection of masked and honest models, by an author who had not read the doctor's code.

`COLLECTION` holds every model with its family, how it was made, and for masked ones the attack that gives the truth
(`truth.broken_by_truth`). The families are split into two halves by a hash of their names: limits of the doctor may be
set on the tuning half; its rates are those on the held-out half.
"""

from typing import Final

from benchmarks.model_collection import (
    honest,
    honest_small,
    masks_gradient,
    masks_input,
    masks_inside,
    masks_output,
    masks_random,
    masks_state,
)
from benchmarks.model_collection.entry import HALVES, Entry, Half, Kind

__all__ = ["COLLECTION", "HALVES", "Entry", "Half", "Kind"]

COLLECTION: Final[tuple[Entry, ...]] = (
    *masks_input.entries(),
    *masks_gradient.entries(),
    *masks_output.entries(),
    *masks_inside.entries(),
    *masks_random.entries(),
    *masks_state.entries(),
    *honest.entries(),
    *honest_small.entries(),
    *honest_small.published(),
)
