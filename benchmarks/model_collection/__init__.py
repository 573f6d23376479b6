"""A collection of masked and honest models, by an author who had not read the doctor's code.

`COLLECTION` holds every model with its family, how it was made, and for masked ones the attack that gives the truth
(`truth.broken_by_truth`). The older families are split into two halves by a hash of their names: limits of the doctor
may be set on the tuning half; its rates are those on the held-out half and on the fresh part, whose families were
written later, again without a look at the doctor. The remedies were then mended after a look at the fresh part; the
later part measures them. The latest and the newest part hold further families, each
written once more without a look at the doctor.
"""

from typing import Final

from benchmarks.model_collection import (
    fresh,
    honest,
    honest_small,
    later,
    latest,
    masks_gradient,
    masks_input,
    masks_inside,
    masks_output,
    masks_random,
    masks_state,
    newest,
)
from benchmarks.model_collection.entry import HALVES, PARTS, Entry, Half, Kind, Part

__all__ = ["COLLECTION", "HALVES", "PARTS", "Entry", "Half", "Kind", "Part"]

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
    *fresh.entries(),
    *later.entries(),
    *latest.entries(),
    *newest.entries(),
)
