"""What the charts of the site are drawn from, as plain data; the library draws, and nothing is computed there."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import pandas as pd

from robustassay.analysis.law import Law, Scatter
from robustassay.report.curves import DIGITS, WORST, Trace
from robustassay.report.models import ReportedModel
from robustassay.report.ranking import Contest
from robustassay.report.website.content import Content

FEWEST: Final = 2
"""Models from which on a trade-off can be seen."""


@final
@dataclass(frozen=True)
class CurveSheet:
    """All curves that share an axis: a file that the page loads when it is asked for."""

    name: str
    versus: str
    title: str
    axis: str
    curves: tuple[Mapping[str, Any], ...]

    @property
    def file(self) -> str:
        """Where it lies on the site."""
        return f"data/{self.name}.js"

    @property
    def entry(self) -> dict[str, Any]:
        """What the page must know before it loads the rest."""
        lines = any(not curve["points"] for curve in self.curves)
        return {"name": self.name, "versus": self.versus, "title": self.title, "axis": self.axis, "lines": lines}


def curve_sheets(content: Content) -> list[CurveSheet]:
    """Sort all curves into sheets."""
    numbers = {identity: at for at, identity in enumerate(content.models)}
    runs = {outcome.run.page: outcome.run for outcome in content.outcomes}
    groups: dict[tuple[str, str], list[Trace]] = defaultdict(list)
    for trace in content.traces:
        groups[trace.versus, trace.axis].append(trace)
    sheets = []
    for at, ((versus, _), some) in enumerate(groups.items()):
        run = runs[some[0].pages[0]]
        norm, by_eps = str(run.spec["threat"]["norm"]), versus == "eps"
        scale = 255.0 if by_eps and norm == "Linf" else 1.0
        unit = f"{norm.replace('inf', '∞')} radius ({'1/255' if scale > 1 else 'pixels in [0, 1]'})"
        title = f"{run.field_name if by_eps else run.threat} on {run.data}"
        some = sorted(some, key=lambda one: (one.attack != WORST, one.attack, numbers[one.model_id]))
        curves = tuple(_scaled(one.to_json(numbers[one.model_id]), scale) for one in some)
        sheets.append(CurveSheet(f"curves-{at}", versus, title, unit if by_eps else versus, curves))
    order = {"eps": 0, "iterations": 1, "queries": 2}
    return sorted(sheets, key=lambda sheet: order[sheet.versus])


def trade_offs(content: Content) -> Iterator[tuple[Contest, dict[str, Any], Scatter]]:
    """Show accuracy against robustness wherever there are models to compare."""
    for contest in content.contests:
        if len(contest.standings) >= FEWEST:
            found = Scatter.of(_points(contest, content.models), "robust accuracy")
            yield contest, _scatter(contest, found, content.models), found


def _points(contest: Contest, models: Mapping[str, ReportedModel]) -> pd.DataFrame:
    rows = [
        (model.label, model.family, one.clean.value, one.robust.value, *one.robust.interval())
        for one in contest.standings
        for model in [models[one.model_id]]
    ]
    return pd.DataFrame(rows, columns=["model", "family", "accuracy", "value", "low", "high"])


def _scatter(contest: Contest, found: Scatter, models: Mapping[str, ReportedModel]) -> dict[str, Any]:
    accuracy = found.points["accuracy"].to_numpy(float)
    spare = 0.08 * max(float(np.ptp(accuracy)), 0.02)
    ends = max(0.0, float(accuracy.min()) - spare), min(float(accuracy.max()) + spare, 1.0)
    points = [
        {
            "name": model.label,
            "family": model.family,
            "x": round(one.clean.value, DIGITS),
            "y": [round(value, DIGITS) for value in (one.robust.value, *one.robust.interval())],
            "frontier": bool(edge),
            "page": model.page,
        }
        for one, edge in zip(contest.standings, found.on_frontier, strict=True)
        for model in [models[one.model_id]]
    ]
    title = f"{contest.threat} on {contest.data}"
    return {"kind": "scatter", "title": title, "points": points, "law": _line(found.of_all, ends), "ends": ends}


def _line(law: Law | None, ends: tuple[float, float]) -> dict[str, Any] | None:
    if law is None:
        return None
    x = np.linspace(ends[0], min(ends[1], 0.9999), 40)
    columns = {"x": x, **dict(zip(("y", "low", "high"), law.at(x), strict=True))}
    return {name: [round(float(value), DIGITS) for value in values] for name, values in columns.items()}


def _scaled(curve: dict[str, Any], scale: float) -> dict[str, Any]:
    places = [float(f"{scale * x:.6g}") for x in curve["x"]]
    return {**curve, "x": places, "end": float(f"{scale * curve['end']:.6g}")}
