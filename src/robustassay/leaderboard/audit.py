"""Reads records as an auditor does: rows that contradict themselves were not written by a run."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from robustassay.evaluation import Result

_SLACK: Final = 1e-4
"""Of a radius: what rounding images to float32 can add to a distance, and more."""


def contradictions(result: Result) -> list[str]:
    """Return a sentence on every rule that some rows break; none is good."""
    records, threat = result.records, result.manifest["spec"]["threat"]
    broken = {
        "a sample has two rows or none": records["sample_id"].isna() | records["sample_id"].duplicated(),
        "clean_ok does not follow from the labels": _flags(records, "clean_ok")
        != (records["clean_label"] == records["label"]).fillna(False).astype(bool),
        "a success without a valid claim": _flags(records, "success")
        & ~(_flags(records, "claimed") & _flags(records, "valid")),
        "a claim verified within eps that counts as no success": _flags(records, "valid")
        & (records["distance"].astype(float) < float(threat["eps"]) * (1 - _SLACK))
        & ~_flags(records, "success"),
        "a success beyond eps": _flags(records, "success") & ~_within(records, threat),
        "a success that missed its goal": _flags(records, "success") & ~_reached(records),
        "a verdict without a claim": records["valid"].notna() & ~_flags(records, "claimed"),
        "a refused claim without a reason, or a reason without one": records["problem"].notna()
        != (records["valid"].notna() & ~_flags(records, "valid")),
        "a negative count": (records[["iterations", "forwards", "backwards", "queries"]].fillna(0) < 0).any(axis=1),
    }
    found = {why: int(rows.sum()) for why, rows in broken.items()}
    return [f"{count} of {len(records)} rows: {why}" for why, count in found.items() if count]


def _flags(records: pd.DataFrame, column: str) -> pd.Series:
    return records[column].fillna(False).astype(bool)


def _within(records: pd.DataFrame, threat: Mapping[str, Any]) -> pd.Series:
    distance = records["distance"].astype(float).fillna(np.inf)
    within: pd.Series = distance <= float(threat["eps"]) * (1 + _SLACK) + _SLACK * (threat["norm"] != "L0")
    return within


def _reached(records: pd.DataFrame) -> pd.Series:
    aimed = records["target"].notna()
    hit = (records["adv_label"] == records["target"]).fillna(False).astype(bool)
    missed = (records["adv_label"] != records["label"]).fillna(False).astype(bool)
    return hit.where(aimed, missed)
