"""A collection of masked and honest models, by authors who had not read the doctor's code.

`COLLECTION` holds every model with its family, how it was made, and for masked ones the attack that gives the truth
(`truth.broken_by_truth`). The first families are split into two halves by a hash of their names: limits of the doctor
may be set on the tuning half, its rates are those on the held-out half. Each later part, in a folder of its own, holds
further families, written without a look at the doctor after it was mended; docs/doctor-rates.md says what each is for.
"""

from typing import Final

from benchmarks.model_collection import (
    eighth,
    fifth,
    fourth,
    honest,
    honest_small,
    masks_gradient,
    masks_input,
    masks_inside,
    masks_output,
    masks_random,
    masks_state,
    ninth,
    second,
    seventh,
    sixth,
    third,
)
from benchmarks.model_collection.entry import HALVES, LATER, PARTS, Entry, Half, Kind, Part

__all__ = ["COLLECTION", "HALVES", "LATER", "PARTS", "Entry", "Half", "Kind", "Part"]

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
    *second.entries(),
    *third.entries(),
    *fourth.entries(),
    *fifth.entries(),
    *sixth.entries(),
    *seventh.entries(),
    *eighth.entries(),
    *ninth.entries(),
)
