"""Finds records that contradict themselves: no run writes such rows."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from robustassay.evaluation import Result
from robustassay.target.surrogate import HALF

_SLACK: Final = 1e-4
"""Relative tolerance of a distance: more than rounding images to float32 can add."""

_ROUNDING: Final = 1e-6
_REQUIRED: Final = ("sample_id", "label", "clean_label", "clean_ok", "claimed", "success", "iterations", "forwards",
                    "backwards", "queries", "seconds")  # fmt: skip


def contradictions(result: Result) -> list[str]:
    """Return a sentence per rule that some rows break; none for honest records."""
    records, threat = result.records, result.manifest["spec"]["threat"]
    if empty := [name for name in _REQUIRED if records[name].isna().any()]:
        return [f"values are missing in {', '.join(empty)}"]
    broken = {
        "a sample has two rows or none": records["sample_id"].isna() | records["sample_id"].duplicated(),
        "clean_ok does not follow from the labels": _flags(records, "clean_ok")
        != (records["clean_label"] == records["label"]).fillna(False).astype(bool),
        "a success without a valid claim": _flags(records, "success")
        & ~(_flags(records, "claimed") & _flags(records, "valid")),
        "a claim verified within eps that counts as no success": _flags(records, "valid")
        & (records["distance"].astype(float) <= float(threat["eps"]))
        & ~_flags(records, "success"),
        "a negative margin within eps that counts as no success": _reached_unclaimed(result),
        "a sample without a target in a targeted run, or with one in another": records["target"].notna()
        != (threat.get("target") is not None),
        "a success beyond eps": _flags(records, "success") & ~_within(records, threat),
        "a success that missed its goal": _flags(records, "success") & ~_reached(records),
        "a verdict without a claim": records["valid"].notna() & ~_flags(records, "claimed"),
        "a refused claim without a reason, or a reason without one": records["problem"].notna()
        != (records["valid"].notna() & ~_flags(records, "valid")),
        "a negative count": (records[["iterations", "forwards", "backwards", "queries", "seconds"]] < 0).any(axis=1),
    }
    found = {why: int(rows.sum()) for why, rows in broken.items()}
    return [f"{count} of {len(records)} rows: {why}" for why, count in found.items() if count]


def is_random(result: Result) -> bool:
    """Say whether the model of a run draws random numbers."""
    return "eot" in result.manifest["spec"]["model"] or bool(result.records["redrawn"].notna().any())


def _reached_unclaimed(result: Result) -> pd.Series:
    """Find rows in which some point within eps reached the goal by its margin, and no success is recorded.

    Margins may be negative without a success where they are noisy, seen in half precision, given by a service, or held
    to a confidence. A refused claim is recorded with its reason.
    """
    records, spec = result.records, result.manifest["spec"]
    inexact = HALF in str(spec["model"].get("search", ""))
    if is_random(result) or inexact or "service" in spec["model"] or spec["attack"].get("kappa"):
        return pd.Series(False, index=records.index)
    beyond = records["distance"].astype(float) > float(spec["threat"]["eps"])
    below: pd.Series = records["margin"].astype(float) < -_ROUNDING
    return below & ~beyond & records["problem"].isna() & ~_flags(records, "success")


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
