"""The finished runs of the benchmark, looked up by row and column, and the numbers that tables and findings share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import pandas as pd

from robustassay.analysis import curves
from robustassay.analysis.curves import Curve, Versus
from robustassay.analysis.rates import Rate, clean_accuracy
from robustassay.evaluation import Result
from robustassay.studies.dong2020.columns import COLUMNS, NORMS, Column, Group, Kind, place
from robustassay.studies.dong2020.rows import BACKBONE, RANDOM, Row
from robustassay.threat import Norm


@final
@dataclass(frozen=True)
class Bench:
    """What was measured."""

    rows: tuple[Row, ...]
    missing: tuple[Row, ...]  # asked for, and not in the zoo
    results: Mapping[tuple[str, ...], Result] = field(repr=False)
    says: str = ""  # how much of the benchmark this is
    norms: tuple[Norm, ...] = NORMS
    backbone: str = BACKBONE  # the row without a defense
    randomising: str = RANDOM
    photographs: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The rows' names."""
        return tuple(row.label for row in self.rows)

    def find(self, row: str, column: Column, norm: Norm, targeted: bool, *kinds: Kind) -> Result | None:
        """Return the first of these runs that there is."""
        places = (place(row, column, norm, targeted, kind) for kind in kinds)
        return next((self.results[there] for there in places if there in self.results), None)

    def over_eps(self, row: str, column: Column, norm: Norm, targeted: bool = False) -> Curve | None:
        """Return the curve over eps."""
        return self._curve(self.find(row, column, norm, targeted, "eps", "both"), row, "eps", targeted)

    def over_effort(self, row: str, column: Column, norm: Norm, targeted: bool = False) -> Curve | None:
        """Return the curve over iterations or queries at the fixed eps; one step, or one query, makes none."""
        if column.group == "transfer" or column.name == "FGSM":
            return None
        versus: Versus = "iterations" if column.group == "white-box" else "queries"
        return self._curve(self.find(row, column, norm, targeted, "fixed", "both"), row, versus, targeted)

    def fixed(self, row: str, column: Column, norm: Norm, targeted: bool = False) -> Curve | None:
        """Return what is known at the fixed eps, as a curve that has this one place at least."""
        return self._curve(self.find(row, column, norm, targeted, "fixed", "both"), row, "eps", targeted)

    def standing(self, row: str, column: Column, norm: Norm) -> pd.Series | None:
        """Say by sample id which samples stand at the fixed eps, untargeted."""
        curve = self.fixed(row, column, norm)
        return None if curve is None else curve.standing(norm.eps)

    def standing_to_all(self, row: str, norm: Norm, *groups: Group) -> tuple[pd.Series, list[str]] | None:
        """Say which samples stand at the fixed eps against all attacks of these groups, and name the attacks."""
        found = {
            column.name: stands
            for column in COLUMNS
            if column.group in groups and (stands := self.standing(row, column, norm)) is not None
        }
        if not found:
            return None
        return pd.concat(found.values(), axis=1, join="inner").all(axis=1), list(found)

    def clean(self, row: str) -> tuple[Rate, pd.Series] | None:
        """Return the clean accuracy on as many samples as any run of the row has, and which of them are right."""
        records = [result.records for there, result in self.results.items() if there[0] == row]
        if not records:
            return None
        most = max(records, key=len)
        right = pd.Series(most["clean_ok"].to_numpy(bool), pd.Index(most["sample_id"]))
        return clean_accuracy(most), right

    def _curve(self, result: Result | None, row: str, versus: Versus, targeted: bool) -> Curve | None:
        if result is None:
            return None
        return curves.of_run(result.manifest, result.records, versus, "success" if targeted else "accuracy", None, row)
