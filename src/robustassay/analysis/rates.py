"""Rates from records, each with its interval."""

import math
from dataclasses import dataclass
from typing import Literal, final

import pandas as pd

from robustassay.analysis.intervals import clopper_pearson, wilson


@final
@dataclass(frozen=True)
class Rate:
    """A count out of a total, with its interval."""

    count: int
    total: int

    @property
    def value(self) -> float:
        """The rate; NaN without samples."""
        return self.count / self.total if self.total else float("nan")

    def interval(self, confidence: float = 0.95, method: Literal["wilson", "exact"] = "wilson") -> tuple[float, float]:
        """Return Wilson's score interval, or Clopper and Pearson's exact one."""
        low, high = (wilson if method == "wilson" else clopper_pearson)(self.count, self.total, confidence)
        return float(low), float(high)


def percent(value: float) -> str:
    """Write a rate as 43.8%; a rate over nothing as a dash."""
    return "–" if math.isnan(value) else f"{value:.1%}"


def clean_accuracy(records: pd.DataFrame) -> Rate:
    """How many samples are classified correctly without an attack."""
    return Rate(int(records["clean_ok"].sum()), len(records))


def robust_accuracy(records: pd.DataFrame) -> Rate:
    """How many samples are classified correctly and not broken; clean errors count as broken."""
    return Rate(int(unbroken(records).sum()), len(records))


def unbroken(records: pd.DataFrame) -> pd.Series:
    """Say which samples are classified correctly and were not broken."""
    return records["clean_ok"].astype(bool) & ~records["success"].astype(bool)


def attack_success_rate(records: pd.DataFrame) -> Rate:
    """How often the attack reached its goal (Dong et al. 2020, section 4.1).

    Untargeted: among the samples classified correctly. Targeted: among all.
    """
    counted = records if records["target"].notna().any() else records[records["clean_ok"]]
    return Rate(int(counted["success"].sum()), len(counted))


def usual_fall(records: pd.DataFrame) -> float:
    """Return the median fall of a margin, over samples that were classified correctly; NaN without margins."""
    if not {"margin", "clean_margin"} <= {*records.columns}:
        return float("nan")
    fall = (records["clean_margin"] - records["margin"]).astype(float)[records["clean_ok"].astype(bool)]
    return float(fall[fall > 0].median())


def worst_case(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Merge evaluations of the same samples: each row comes from an attack that succeeded, if one did.

    Among successes the closest counts. Of failures, those inside the ball come first: the margin of a minimum-norm
    attack is that of a point beyond eps. The costs of all attacks add up. `attack` names whose row it is.
    """
    named = [records.assign(attack=name, usual_fall=usual_fall(records)) for name, records in parts.items()]
    stacked = pd.concat(named, ignore_index=True)
    costs = ["iterations", "forwards", "backwards", "queries", "seconds"]
    order = stacked["sample_id"].drop_duplicates()
    lost = ~stacked["success"].astype(bool)
    ranked = stacked.assign(_lost=lost, _beyond=lost & stacked["distance"].notna())
    ranked = ranked.sort_values(["_lost", "_beyond", "distance", "margin"], kind="stable")
    worst = ranked.drop_duplicates("sample_id").set_index("sample_id").drop(columns=["_lost", "_beyond"])
    worst[costs] = stacked.groupby("sample_id")[costs].sum()
    return worst.loc[order].reset_index()
