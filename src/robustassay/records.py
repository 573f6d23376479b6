"""The records of a run: one row per sample. Every published number is derived from these rows."""

from typing import Final

import pandas as pd
import pyarrow as pa

SCHEMA_VERSION: Final = 3
"""Raise this whenever a column or its meaning changes. Version 1 was of 0.1.0."""

READABLE_VERSIONS: Final = (2, 3)
"""Files of other versions are refused. The columns that version 2 does not have are read as null."""

IMPROVEMENT: Final = pa.struct([("iteration", pa.int64()), ("query", pa.int64()), ("distance", pa.float64())])

BY_OBJECTIVE: Final = pa.struct(
    [("objective", pa.string()), ("valid", pa.bool_()), *((norm, pa.float64()) for norm in ("L1", "L2", "Linf"))]
)

SCHEMA_2: Final = pa.schema(
    [
        ("sample_id", pa.string()),
        ("label", pa.int64()),
        ("target", pa.int64()),  # null in an untargeted run
        ("clean_label", pa.int64()),
        ("clean_confidence", pa.float64()),  # softmax of the clean label, over the scores that a service returns
        ("clean_ok", pa.bool_()),  # the clean image is classified correctly
        ("claimed", pa.bool_()),  # the attack found a point that reached the goal
        ("valid", pa.bool_()),  # verification agreed with the claim; null without a claim
        ("problem", pa.string()),  # why a claim is not valid, else null
        ("success", pa.bool_()),  # claimed, valid and within eps
        ("distance", pa.float64()),  # of the verified point, in the norm of the threat; null without one
        ("adv_label", pa.int64()),  # predicted label of the verified point; null without one
        ("adv_confidence", pa.float64()),  # softmax of that label
        ("redrawn", pa.float64()),  # of a random model: share of fresh draws in which the point reaches the goal
        ("margin", pa.float64()),  # to the goal: at the verified point, else the lowest of all queries
        ("clean_margin", pa.float64()),  # to the goal, at the clean image
        ("uint8_ok", pa.bool_()),  # goal still reached after rounding to 8 bits, at any distance; null without success
        ("iterations", pa.int64()),
        ("forwards", pa.int64()),
        ("backwards", pa.int64()),
        ("queries", pa.int64()),
        ("claimed_at_iteration", pa.int64()),  # null without a claim
        ("claimed_at_query", pa.int64()),
        ("improvements", pa.list_(IMPROVEMENT)),  # claims better than the one before; the last is the one verified
        (
            "other_objectives",
            pa.list_(BY_OBJECTIVE),
        ),  # the best points by an attack's other objectives; null where it has none
        ("claimed_by", pa.string()),  # the stage of a composed attack that made the claim, else null
        ("seconds", pa.float64()),  # this sample's share of its wave's time, by model passes
    ]
)

SCHEMA: Final = pa.schema(
    [
        *SCHEMA_2,
        # The lowest margin within eps so far: after these numbers of queries it is lower than before, and this low. The
        # last is `margin` where a claim was verified. Empty where `improvements` hold distances, or labels are all.
        ("trace_queries", pa.list_(pa.int32())),
        ("trace_margins", pa.list_(pa.float32())),
        # The classes with the highest logits, and these logits; empty for a service that gives labels only.
        ("clean_top_labels", pa.list_(pa.int32())),
        ("clean_top_logits", pa.list_(pa.float32())),
        ("adv_top_labels", pa.list_(pa.int32())),  # at the verified point, else at the lowest margin of all queries
        ("adv_top_logits", pa.list_(pa.float32())),
    ]
)

_NULLABLE: Final = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return records as a data frame whose integers and booleans can be missing."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame


TIMING: Final = ("seconds",)
"""Columns that may differ between two runs of one specification; all others must not."""
