"""Robustness curves: accuracy and attack success rate versus eps, iterations or queries, from the records of one run.

The rates are those of Dong et al. (2020, arXiv:1912.11852, section 4.1): accuracy over all samples; success of an
untargeted attack over correctly classified samples, of a targeted one over all; a minimum-distance attack counts at eps
only if its distance is at most eps. Each sample has one number, the eps or effort that breaks it, so a curve is
monotonic, and the worst case of several attacks is the minimum of these numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis.intervals import wilson
from robustassay.analysis.rates import Rate
from robustassay.eps import format_eps
from robustassay.errors import BadRequest
from robustassay.registry import lookup

Versus = Literal["eps", "iterations", "queries"]
Measure = Literal["accuracy", "success"]
Numbers = npt.NDArray[np.float64]

_CAME_AT: Final = {"iterations": "iteration", "queries": "query"}


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """A rate along an axis: an exact step function."""

    label: str
    versus: Versus
    measure: Measure
    breaks_at: pd.Series = field(
        repr=False
    )  # by sample id: the smallest eps, iterations or queries; infinite if not broken
    clean_ok: pd.Series = field(repr=False)  # by the same ids
    targeted: bool
    end: float  # the last point of the run; infinite if it is known at every eps
    only_at: tuple[float, ...] | None = None  # for attacks at a fixed budget: the eps they ran at
    settled: bool = False  # the attack ended by itself, so more effort would change nothing

    def at(self, where: float) -> Rate:
        """Return the rate at one eps or number of iterations or queries; refuse points beyond the run."""
        broken = self._broken_by(np.array([self._known(where)]))
        return Rate(int(self._count(broken)[0]), len(self._counted))

    def unbroken(self, where: float) -> pd.Series:
        """Say by sample id which samples are correct and not broken there; the input of `compare.pair`."""
        return self.clean_ok & (self.breaks_at > self._known(where))

    @property
    def steps(self) -> list[float]:
        """The points of the curve: its start, every step, and its end."""
        if self.only_at is not None:
            return list(self.only_at)
        inside = self._counted[(self._counted <= self.end) & np.isfinite(self._counted)]
        return [float(step) for step in np.unique([0.0, *inside, *([self.end] if math.isfinite(self.end) else [])])]

    @property
    def is_flat_after_end(self) -> bool:
        """Whether the curve is known beyond its run: no sample is left, or the attack had ended."""
        return self.settled or not bool((self.breaks_at > self.end).any())

    @property
    def median(self) -> float:
        """The median: where half the samples are broken; infinite if fewer are.

        Of an accuracy curve, clean mistakes count as broken by nothing: Dong et al.'s median distance over all samples.
        """
        self._check_whole("median")
        return float(np.median(self._counted)) if len(self._counted) else float("nan")

    def area(self, until: float) -> float:
        """Return the area under the curve from 0 to `until`; divided by `until` it is the mean rate."""
        self._check_whole("area")
        if not len(self._counted):
            return float("nan")
        under_accuracy = float(np.minimum(self._counted, self._known(until)).mean())
        return under_accuracy if self.measure == "accuracy" else until - under_accuracy

    def to_frame(self, at: Sequence[float] | None = None, confidence: float = 0.95) -> pd.DataFrame:
        """Return one row per step, or per point asked for, with Wilson's pointwise interval."""
        places = np.asarray(self.steps if at is None else [self._known(where) for where in at], np.float64)
        count, total = self._count(self._broken_by(places)), len(self._counted)
        low, high = wilson(count, total, confidence)
        with np.errstate(invalid="ignore"):
            rate = count / np.float64(total)
        columns = {self.measure: rate, "low": low, "high": high, "count": count, "total": total}
        kind = np.float64 if self.versus == "eps" else np.int64
        return pd.DataFrame({"curve": self.label, self.versus: places.astype(kind), **columns})

    def scaled(self, unit: float) -> "Curve":
        """Return the same curve with eps in another unit; the root of the number of values gives normalised L2."""
        if self.versus != "eps":
            raise BadRequest(f"A count of {self.versus} has no other unit: scale a curve versus eps.")
        known = None if self.only_at is None else tuple(eps / unit for eps in self.only_at)
        return replace(self, breaks_at=self.breaks_at / unit, end=self.end / unit, only_at=known)

    def over(self, whole: "Curve") -> "Curve":
        """Return the same curve over the samples of another; those it never attacked count as not broken."""
        breaks_at = self.breaks_at.reindex(whole.breaks_at.index, fill_value=np.inf)
        return replace(self, breaks_at=breaks_at, clean_ok=whole.clean_ok)

    @property
    def _counted(self) -> Numbers:
        """Where each counted sample is broken; the curve counts how many of these lie below a point."""
        breaks_at = self.breaks_at.to_numpy(np.float64)
        right = self.clean_ok.to_numpy(bool)
        if self.measure == "accuracy":
            return np.where(right, breaks_at, 0.0)
        return breaks_at if self.targeted else breaks_at[right]

    def _broken_by(self, places: Numbers) -> npt.NDArray[np.int64]:
        return np.searchsorted(np.sort(self._counted), places, side="right").astype(np.int64)

    def _count(self, broken: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return len(self._counted) - broken if self.measure == "accuracy" else broken

    def _known(self, where: float) -> float:
        """Return a point of the curve, rounded as in the run."""
        if not 0 <= where < math.inf:
            raise BadRequest(f"A curve versus {self.versus} starts at 0 and has no end: there is nothing at {where}.")
        if self.only_at is not None:
            for eps in self.only_at:
                if math.isclose(eps, where, rel_tol=1e-9):
                    return eps
            raise BadRequest(
                f"{self.label} ran at eps {', '.join(map(format_eps, self.only_at))} and has no value at "
                f"{format_eps(where)}: run it there, or use an attack that seeks the minimum, such as fmn."
            )
        if where > self.end and not self.is_flat_after_end:
            raise BadRequest(
                f"{self.label} ended after {self.end:g} {self.versus} and has no value at {where:g}: run it longer."
            )
        return float(where)

    def _check_whole(self, what: str) -> None:
        if self.only_at is not None:
            raise BadRequest(
                f"{self.label} has no {what}: it is known at eps {', '.join(map(format_eps, self.only_at))} only. "
                "Use an attack that seeks the minimum, such as fmn."
            )


def versus_eps(
    records: pd.DataFrame, eps: float, every_eps: bool, measure: Measure = "accuracy", label: str = "the run"
) -> Curve:
    """Return the curve over eps of a run at one eps.

    A run with minimal distances (`every_eps`) gives the whole curve; a run at a fixed budget gives one point.
    """
    only_at = None if every_eps else (eps,)
    return _curve(records, _distances(records, eps), "eps", measure, label, math.inf, only_at)


def versus_effort(
    records: pd.DataFrame,
    versus: Literal["iterations", "queries"],
    eps: float,
    every_eps: bool,
    measure: Measure = "accuracy",
    label: str = "the run",
    within: float | None = None,
) -> Curve:
    """Return the curve over iterations or queries of a run at one eps, from the claims in its records.

    Where distances are minimal, `within` may ask for another eps than the run's own. A sample is broken only if its
    last claim, which was verified, is within it; the first claim within it counts.
    """
    close = eps if within is None else within
    if close != eps and not every_eps:
        raise BadRequest(
            f"{label} ran at eps {format_eps(eps)} and has no value at {format_eps(close)}: run it there, or use an "
            "attack that seeks the minimum, such as fmn."
        )
    came, improvements = _CAME_AT[versus], records["improvements"].to_numpy()
    claimed_at = records[f"claimed_at_{came}"].to_numpy()
    breaks_at = np.full(len(records), np.inf)
    for row in np.flatnonzero(_distances(records, eps) <= close):
        near = (claim[came] for claim in improvements[row] if not every_eps or claim["distance"] <= close)
        breaks_at[row] = min(near, default=claimed_at[row])
    end = float(records[versus].max()) if len(records) else 0.0
    return _curve(records, breaks_at, versus, measure, label, end, None)


def of_run(
    manifest: Mapping[str, Any],
    records: pd.DataFrame,
    versus: Versus,
    measure: Measure,
    within: float | None = None,
    label: str | None = None,
) -> Curve:
    """Return the curve of a stored run; an unknown attack counts at its own eps only."""
    from robustassay import attacks  # brings torch, which nothing else here needs

    if versus not in get_args(Versus) or measure not in get_args(Measure):
        raise BadRequest(
            f"A curve shows {' or '.join(get_args(Measure))} versus {' or '.join(get_args(Versus))}, "
            f"not {measure} versus {versus}."
        )
    eps, attack = float(manifest["spec"]["threat"]["eps"]), str(manifest["spec"]["attack"]["name"])
    every_eps = attack in attacks.attack_names() and bool(lookup("attack", attack).seeks_minimum)
    named = str(manifest["title"]) if label is None else label
    if versus != "eps":
        curve = versus_effort(records, versus, eps, every_eps, measure, named, within)
        return replace(curve, settled=_ended_by_itself(manifest["spec"], records))
    if within is not None:
        raise BadRequest("A curve versus eps shows every eps: leave the one eps out, or draw versus iterations.")
    return versus_eps(records, eps, every_eps, measure, named)


def merge(curves: Sequence[Curve], label: str) -> Curve:
    """Return the worst case of several attacks on one model: a sample is broken where the first of them breaks it."""
    if not curves:
        raise BadRequest("There is nothing to merge: give at least one curve.")
    first = curves[0]
    for curve in curves:
        if (curve.versus, curve.measure, curve.targeted) != (first.versus, first.measure, first.targeted):
            raise BadRequest(f"{curve.label} measures something else than {first.label}: draw them apart.")
        if set(curve.breaks_at.index) != set(first.breaks_at.index):
            raise BadRequest(f"{curve.label} covers other samples than {first.label}: finish both runs, or draw one.")
        if not curve.clean_ok.loc[first.clean_ok.index].equals(first.clean_ok):
            raise BadRequest(f"{curve.label} is of another model than {first.label}: draw them apart.")
    breaks_at = pd.concat([curve.breaks_at.loc[first.breaks_at.index] for curve in curves], axis=1).min(axis=1)
    points = [curve.only_at for curve in curves if curve.only_at is not None]
    only_at = tuple(sorted({eps for known in points for eps in known})) if len(points) == len(curves) else None
    end, settled = max(curve.end for curve in curves), all(curve.settled for curve in curves)
    return replace(first, label=label, breaks_at=breaks_at, end=end, only_at=only_at, settled=settled)


def _ended_by_itself(spec: Mapping[str, Any], records: pd.DataFrame) -> bool:
    """Say whether an attack may end before its last step, as DeepFool does."""
    limit = spec["attack"].get("steps")
    return limit is not None and not spec["threat"].get("query_budget") and bool((records["iterations"] < limit).all())


def _distances(records: pd.DataFrame, eps: float) -> Numbers:
    """Return the distance of each verified point; infinite where there is none.

    A point that was verified within eps counts as within eps, even if rounding put its distance slightly above.
    """
    distance, won = records["distance"].to_numpy(np.float64), records["success"].to_numpy(bool)
    beyond = records["valid"].fillna(False).astype(bool).to_numpy() & (distance > eps)
    return np.where(won, np.minimum(distance, eps), np.where(beyond, distance, np.inf))


def _curve(
    records: pd.DataFrame,
    breaks_at: Numbers,
    versus: Versus,
    measure: Measure,
    label: str,
    end: float,
    only_at: tuple[float, ...] | None,
) -> Curve:
    ids = pd.Index(records["sample_id"])
    return Curve(
        label=label,
        versus=versus,
        measure=measure,
        breaks_at=pd.Series(breaks_at, ids, dtype=np.float64),
        clean_ok=pd.Series(records["clean_ok"].to_numpy(bool), ids),
        targeted=bool(records["target"].notna().any()),
        end=end,
        only_at=only_at,
    )
