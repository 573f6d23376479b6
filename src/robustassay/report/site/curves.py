"""Curves of the site: one per run and one per model (the worst case), at a limited number of points."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final, get_args

import numpy as np
import pandas as pd

from robustassay.analysis import curves
from robustassay.analysis.curves import Curve, Measure, Versus
from robustassay.errors import BadRequest
from robustassay.report.charts.curve_plot import SHOWN
from robustassay.results.models import Frames
from robustassay.results.runs import StoredRun

WORST: Final = "worst case of all attacks"
PLACES: Final = 20
"""Points of a curve at most: between two of them less than 1/17 of the broken samples are broken."""
SHORTEST: Final = 10
"""The fewest iterations or queries that an axis shows, where a run has them."""
BEYOND: Final = 1.25
"""An axis of iterations or queries ends this far beyond the last sample to be broken: the rest is a flat line."""
DIGITS: Final = 4
UNIT: Final = 10**DIGITS
"""Rates are written as whole multiples of 1/UNIT, which takes a third of the bytes."""


@final
@dataclass(frozen=True, eq=False)
class SiteCurve:
    """One curve: accuracy and success with their intervals, at the same points."""

    versus: Versus
    axis: str  # equal for curves drawn together: `StoredRun.eps_axis_key` over eps, else `StoredRun.comparison_key`
    model_id: str
    attack: str
    pages: tuple[str, ...]  # of the runs it is made of
    exact: bool  # all steps are here, not a selection
    only_points: bool  # no value is known between the points
    flat: bool  # constant beyond its end
    end: float  # where the axis may end
    samples: int
    x: tuple[float, ...]
    rates: Mapping[Measure, tuple[tuple[float, float, float], ...]]  # value, low, high

    @property
    def is_curve(self) -> bool:
        """Whether it shows more than one point beside the clean accuracy."""
        return len(self.x) > 2 if self.only_points else self.versus == "eps" or self.end > 1

    def to_json(self, model: int) -> dict[str, Any]:
        """Return the curve as plain data, with the number of its model."""
        facts = {"model": model, "attack": self.attack, "n": self.samples, "end": self.end, "x": self.x}
        page = {"page": self.pages[0]} if len(self.pages) == 1 else {}
        kind = {"exact": int(self.exact), "points": int(self.only_points), "flat": int(self.flat)}
        columns = {
            measure[0]: [[round(UNIT * value) for value in column] for column in zip(*rows, strict=True)]
            for measure, rows in self.rates.items()
        }
        return {**facts, **page, **kind, **columns}


def site_curves(runs: Sequence[StoredRun], frames: Frames, labels: Mapping[str, str]) -> Iterator[SiteCurve]:
    """Make all curves of one model from runs that differ in attack and eps only."""
    for versus in get_args(Versus):
        axes: dict[str, list[StoredRun]] = defaultdict(list)
        for run in runs:
            axes[run.eps_axis_key if versus == "eps" else run.comparison_key].append(run)
        for axis, together in axes.items():
            yield from _on_axis(versus, axis, together, frames, labels)


def _on_axis(
    versus: Versus, axis: str, runs: Sequence[StoredRun], frames: Frames, labels: Mapping[str, str]
) -> Iterator[SiteCurve]:
    ordered = sorted(runs, key=lambda run: (bool(run.confirms), -len(frames[run.key])))
    parts = [(run, _curve(run, frames, versus)) for run in ordered]
    by_attack: dict[str, list[tuple[StoredRun, Curve]]] = defaultdict(list)
    for run, curve in parts:
        if not run.confirms:
            by_attack[labels[run.key]].append((run, curve))
    joined = {label: _join(some) for label, some in by_attack.items()}
    for label, (curve, pages) in joined.items():
        yield _thin(curve, axis, runs[0].model_id, label, pages)
    if len(joined) > 1 or any(run.confirms for run in runs):
        curve, pages = _join(parts)
        yield _thin(curve, axis, runs[0].model_id, WORST, pages)


def _curve(run: StoredRun, frames: Frames, versus: Versus) -> Curve:
    records = frames[run.key]
    if records["improvements"].isna().any():  # of an older version, which recorded the last claim only
        known = [() if one is None else one for one in records["improvements"]]
        records = records.assign(improvements=pd.Series(known, records.index, dtype=object))
    return curves.of_run(run.manifest, records, versus, "accuracy")


def _join(parts: Sequence[tuple[StoredRun, Curve]]) -> tuple[Curve, tuple[str, ...]]:
    """Merge what can be merged with the first: the same samples, or what confirms some of them."""
    whole, pages = parts[0][1], [parts[0][0].page]
    for run, curve in parts[1:]:
        try:
            whole = curves.merge([whole, curve.over(whole) if run.confirms else curve], "")
        except BadRequest:  # other samples
            continue
        pages.append(run.page)
    return whole, tuple(pages)


def _thin(curve: Curve, axis: str, model_id: str, attack: str, pages: tuple[str, ...]) -> SiteCurve:
    if curve.only_at is not None:  # at radius zero, accuracy is clean accuracy
        curve = replace(curve, only_at=(0.0, *curve.only_at))
    steps = np.array(curve.steps)
    exact = len(steps) <= PLACES
    if not exact:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, PLACES).round().astype(int))]
    kinds: tuple[Measure, ...] = get_args(Measure)
    frames = {kind: replace(curve, measure=kind).to_frame(list(steps)).fillna(0) for kind in kinds}
    return SiteCurve(
        versus=curve.versus,
        axis=axis,
        model_id=model_id,
        attack=attack,
        pages=pages,
        exact=exact,
        only_points=curve.only_at is not None,
        flat=curve.is_flat_after_end,
        end=_end(curve),
        samples=len(curve.breaks_at),
        x=tuple(float(f"{step:.6g}") for step in steps),
        rates={
            kind: tuple(
                (round(value, DIGITS), round(low, DIGITS), round(high, DIGITS))
                for value, low, high in zip(frame[kind], frame["low"], frame["high"], strict=True)
            )
            for kind, frame in frames.items()
        },
    )


def _end(curve: Curve) -> float:
    """Say where the axis may end: the last few samples to be broken would squeeze the rest."""
    if curve.only_at is not None:
        return 1.1 * max(curve.only_at)
    broken = curve.breaks_at[np.isfinite(curve.breaks_at) & (curve.breaks_at > 0)]
    if not len(broken):
        return curve.end if np.isfinite(curve.end) else 0.0
    if not np.isfinite(curve.end):
        return float(f"{1.05 * float(broken.quantile(SHOWN)):.6g}")
    return float(min(curve.end, max(SHORTEST, np.ceil(BEYOND * float(broken.max())))))
