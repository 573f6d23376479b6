"""The data of the site's charts; the browser draws them and computes nothing."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import pandas as pd

from robustassay.analysis.law import Law, Scatter
from robustassay.report import formatting
from robustassay.report.site.content import Content
from robustassay.report.site.curves import DIGITS, WORST, SiteCurve
from robustassay.report.site.models import ReportedModel
from robustassay.results.models import ThreatRanking
from robustassay.results.runs import StoredRun

FEWEST: Final = 2
"""The fewest models that a trade-off is drawn for."""
FEWEST_FOR_LAW: Final = 8
"""The fewest models that the law is fitted to: with fewer, chance decides its slope."""


@final
@dataclass(frozen=True)
class CurveSheet:
    """All curves that share an axis: one file, which the page loads on demand."""

    name: str
    versus: str
    title: str
    axis: str
    curves: tuple[Mapping[str, Any], ...]

    @property
    def file(self) -> str:
        """Its path on the site."""
        return f"data/{self.name}.js"

    @property
    def entry(self) -> dict[str, Any]:
        """What the page needs before it loads the curves."""
        models = len({curve["model"] for curve in self.curves})
        return {"name": self.name, "versus": self.versus, "title": self.title, "axis": self.axis, "models": models}


def curve_sheets(content: Content) -> list[CurveSheet]:
    """Group all curves by their axis."""
    numbers = {identity: at for at, identity in enumerate(content.models)}
    runs = {attack.run.page: attack.run for attack in content.attacks}
    groups: dict[tuple[str, str], list[SiteCurve]] = defaultdict(list)
    for curve in (one for one in content.curves if one.is_curve):
        groups[curve.versus, curve.axis].append(curve)
    sheets = []
    for at, ((versus, _), some) in enumerate(groups.items()):
        run = runs[some[0].pages[0]]
        norm, by_eps = str(run.spec["threat"]["norm"]), versus == "eps"
        scale = 255.0 if by_eps and norm == "Linf" else 1.0
        unit = f"{norm.replace('inf', '∞')} radius ({'1/255' if scale > 1 else 'pixels in [0, 1]'})"
        title = f"{run.threat_without_eps if by_eps else run.threat} on {run.data}"
        some = sorted(some, key=lambda one: (one.attack != WORST, one.attack, numbers[one.model_id]))
        curves = tuple(_scaled(one.to_json(numbers[one.model_id]), scale) for one in some)
        sheets.append(CurveSheet(f"curves-{at}", versus, title, unit if by_eps else versus, curves))
    order = {"eps": 0, "iterations": 1, "queries": 2}
    return sorted(sheets, key=lambda sheet: order[sheet.versus])


@final
@dataclass(frozen=True)
class MissingCurves:
    """Curves that the runs cannot give, and an attack that would."""

    text: str
    attack: str
    run: StoredRun  # the command evaluates its model under its threat


_GIVES: Final = {
    "eps": ("radius", "an attack within a fixed radius gives one point. One that seeks the nearest point", "fmn"),
    "iterations": ("iterations", "one step gives one point. An attack of many steps", "pgd"),
}


def missing_curves(content: Content) -> list[MissingCurves]:
    """Say which models have no curve versus radius or iterations, and why."""
    runs = {attack.run.page: attack.run for attack in content.attacks}
    found = []
    for versus, (axis, reason, attack) in _GIVES.items():
        own = [one for one in content.curves if one.versus == versus]
        drawn = {one.model_id for one in own if one.is_curve}
        without = {one.model_id: one for one in own if one.model_id not in drawn}
        if without:
            names = [content.models[model_id].label for model_id in without]
            named = formatting.listed(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"])
            first = next(iter(without.values()))
            one = f", here for {names[0]}" if len(names) > 1 else ""
            text = f"No curve versus {axis} for {named}: {reason} gives the whole curve{one}:"
            found.append(MissingCurves(text, attack, runs[first.pages[0]]))
    return found


def trade_offs(content: Content) -> Iterator[tuple[ThreatRanking, dict[str, Any], Scatter]]:
    """Yield accuracy against robustness for every threat with enough models."""
    for ranking in content.rankings:
        if len(ranking.models) >= FEWEST:
            found = Scatter.of(_points(ranking, content.models), "robust accuracy")
            yield ranking, _scatter(ranking, found, content.models), found


def _points(ranking: ThreatRanking, models: Mapping[str, ReportedModel]) -> pd.DataFrame:
    rows = [
        (model.label, model.family, one.clean.value, one.robust.value, *one.robust.interval())
        for one in ranking.models
        for model in [models[one.model_id]]
    ]
    return pd.DataFrame(rows, columns=["model", "family", "accuracy", "value", "low", "high"])


def _scatter(ranking: ThreatRanking, found: Scatter, models: Mapping[str, ReportedModel]) -> dict[str, Any]:
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
        for one, edge in zip(ranking.models, found.on_frontier, strict=True)
        for model in [models[one.model_id]]
    ]
    title = f"{ranking.threat} on {ranking.data}"
    return {"kind": "scatter", "title": title, "points": points, "law": _line(fitted_law(found), ends), "ends": ends}


def fitted_law(found: Scatter) -> Law | None:
    """Return the law of all models, where there are enough of them."""
    return found.of_all if len(found.points) >= FEWEST_FOR_LAW else None


def _line(law: Law | None, ends: tuple[float, float]) -> dict[str, Any] | None:
    if law is None:
        return None
    x = np.linspace(ends[0], min(ends[1], 0.9999), 40)
    columns = {"x": x, **dict(zip(("y", "low", "high"), law.at(x), strict=True))}
    return {name: [round(float(value), DIGITS) for value in values] for name, values in columns.items()}


def _scaled(curve: dict[str, Any], scale: float) -> dict[str, Any]:
    places = [float(f"{scale * x:.6g}") for x in curve["x"]]
    return {**curve, "x": places, "end": float(f"{scale * curve['end']:.6g}")}
