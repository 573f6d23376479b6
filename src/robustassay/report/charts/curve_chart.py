"""The curves of finished runs: which runs make one curve, their labels, and the files they are written to."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, final

import pandas as pd

from robustassay.analysis import curves
from robustassay.analysis.curves import Curve, Measure, Versus
from robustassay.eps import format_eps
from robustassay.errors import BadRequest, StoreFailed
from robustassay.files import write_atomically
from robustassay.registry import spell_setting
from robustassay.report import formatting
from robustassay.report.charts import curve_plot
from robustassay.results.runs import StoredRun, find_runs

COLUMNS: Final = 5
"""Points at which a table shows a rate, at most; the file holds all steps."""

ENDINGS: Final = (".png", ".svg", ".csv", ".parquet")


@final
@dataclass(frozen=True, eq=False)
class CurveChart:
    """Curves that share their axes."""

    curves: tuple[Curve, ...]
    norm: str  # of all curves; empty where they differ
    own_eps: tuple[float, ...]  # the radii of the runs, in the unit of the axis
    normalised: bool  # distances are divided by the square root of the number of values of an image
    left_out: tuple[str, ...]  # titles of the runs that make no curve

    @property
    def versus(self) -> Versus:
        """The quantity of the x axis."""
        return self.curves[0].versus

    @property
    def measure(self) -> Measure:
        """The quantity of the y axis."""
        return self.curves[0].measure

    def to_frame(self) -> pd.DataFrame:
        """Return every step of every curve, with its interval."""
        return pd.concat([curve.to_frame() for curve in self.curves], ignore_index=True)

    def places(self) -> list[float]:
        """Choose the points at which a table shows the rates: the radii of the runs, or 1, 2, 5, 10 and so on."""
        if self.versus == "eps":
            return list(self.own_eps[-COLUMNS:])
        end = max(curve.end for curve in self.curves)
        round_numbers = [k * 10.0**n for n in range(12) for k in (1, 2, 5) if k * 10**n <= 0.7 * end]
        return [*round_numbers[1 - COLUMNS :], end]

    def table(self, at: Sequence[float] = ()) -> tuple[list[str], list[list[str]]]:
        """Return the heading and one line per curve: its rate at some points with the interval, its median and mean."""
        places = sorted(at) or self.places()
        heading = [f"{self.measure}, %", "n", *(f"at {self._place(place)}" for place in places)]
        heading += [f"median {self.versus}", f"mean to {self._place(places[-1])}"]
        return heading, [self._line(curve, places) for curve in self.curves]

    def _line(self, curve: Curve, places: Sequence[float]) -> list[str]:
        rates = [_known(partial(_rate, curve, place)) for place in places]
        mean = _known(lambda: formatting.bare_percent(curve.area(places[-1]) / places[-1]))
        return [curve.label, str(len(curve.breaks_at)), *rates, _known(lambda: self._median(curve)), mean]

    def _median(self, curve: Curve) -> str:
        if self.versus == "eps":
            return formatting.distance(curve.median, self.own_eps[-1]) if math.isfinite(curve.median) else "∞"
        return f"{curve.median:,.0f}" if math.isfinite(curve.median) else f"> {curve.end:,.0f}"

    def _place(self, place: float) -> str:
        return format_eps(place) if self.versus == "eps" else f"{place:,.0f}"


def read_chart(
    folders: Sequence[Path],
    versus: Versus,
    measure: Measure,
    within: float | None = None,
    worst_case: bool = False,
    values: int | None = None,
) -> CurveChart:
    """Read the curves of all runs in these folders or below them.

    Runs that differ in eps alone are points of one curve over eps. `worst_case` makes one curve of all attacks on a
    model. `values`, the number of values of an image, normalises L2 distances as Dong et al. do, `within` too.
    """
    runs = find_runs(folders)
    norms = {str(run.spec["threat"]["norm"]) for run in runs}
    if versus == "eps" and len(norms) > 1:
        raise BadRequest(f"Runs under {formatting.listed(sorted(norms))} share no axis: draw one norm at a time.")
    if values is not None and norms != {"L2"}:
        raise BadRequest("Only L2 distances can be normalised: draw L2 runs, or leave out --values.")
    drawn = [run for run in runs if worst_case or not run.confirms]
    if not drawn:
        raise BadRequest("These runs only confirm others: add the folders of the runs that they confirm.")
    groups: dict[tuple[str, ...], list[StoredRun]] = {}
    unit = 1.0 if values is None else math.sqrt(values)
    close = None if within is None else within * unit
    for traits, run in sorted(
        zip(_traits(drawn, versus, close, worst_case), drawn, strict=True), key=lambda pair: pair[0]
    ):
        groups.setdefault(traits, []).append(run)
    found = [
        _join(together, label, versus, measure, close)
        for label, together in zip(_labels(list(groups)), groups.values(), strict=True)
    ]
    return CurveChart(
        curves=tuple(curve.scaled(unit) for curve in found) if versus == "eps" else tuple(found),
        norm=norms.pop() if len(norms) == 1 else "",
        own_eps=tuple(sorted({float(run.spec["threat"]["eps"]) / unit for run in drawn})),
        normalised=values is not None,
        left_out=tuple(str(run.manifest["title"]) for run in runs if run not in drawn),
    )


def save(chart: CurveChart, path: Path) -> None:
    """Write a picture (.png, .svg) or the data (.csv, .parquet), by the suffix of the name."""
    writers: dict[str, Callable[[], None]] = {
        ".png": lambda: curve_plot.draw(chart, path),
        ".svg": lambda: curve_plot.draw(chart, path),
        ".csv": lambda: write_atomically(path, chart.to_frame().to_csv(index=False)),
        ".parquet": lambda: write_atomically(path, chart.to_frame().to_parquet(index=False)),
    }
    check_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writers[path.suffix]()
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written ({error.strerror or error}): choose another place.") from error


def check_name(path: Path) -> None:
    """Refuse a name with another suffix, before any work is done."""
    if path.suffix not in ENDINGS:
        raise BadRequest(f"{path} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")


def _join(runs: Sequence[StoredRun], label: str, versus: Versus, measure: Measure, within: float | None) -> Curve:
    """Make one curve of the runs of a group; a confirming run covers only some of their samples."""
    runs = sorted(runs, key=lambda run: bool(run.confirms))
    parts = [curves.of_run(run.manifest, run.read(), versus, measure, within, label) for run in runs]
    return curves.merge(
        [part.over(parts[0]) if run.confirms else part for run, part in zip(runs, parts, strict=True)], label
    )


def _traits(runs: Sequence[StoredRun], versus: Versus, within: float | None, worst_case: bool) -> list[tuple[str, ...]]:
    """Return what identifies the curve of each run; runs with equal values share one curve."""
    models_of_name = {run.model: len({other.model_id for other in runs if other.model == run.model}) for run in runs}
    found: list[tuple[str, ...]] = []
    for run in runs:
        weights = f" ({str(run.spec['model'].get('weights', 'unknown'))[:12]})" if models_of_name[run.model] > 1 else ""
        attack = ("", "") if worst_case else (_attack(run, runs), f"seed {run.spec['seed']}")
        own = float(run.spec["threat"]["eps"])
        radius = "" if versus == "eps" else f" {format_eps(own if within is None else within)}"
        threat = run.threat.replace(f" {format_eps(own)}", radius, 1)
        found.append((run.model + weights, *attack, threat, run.data))
    return found


def _attack(run: StoredRun, runs: Sequence[StoredRun]) -> str:
    """Name an attack, with its text settings and those in which runs of the same attack differ."""
    spec = run.spec["attack"]
    others = [other.spec["attack"] for other in runs if other.attack == run.attack]
    names_something = {key for key, value in spec.items() if isinstance(value, str | Mapping)}
    shown = [key for key in spec if key in names_something or any(other.get(key) != spec[key] for other in others)]
    return " ".join([run.attack, *(f"{key} {spell_setting(spec[key])}" for key in shown if key != "name")])


def _labels(groups: Sequence[tuple[str, ...]]) -> list[str]:
    """Name each curve by its model, its attack, and whatever else differs between curves."""
    varied = [at < 2 or len(set(column)) > 1 for at, column in enumerate(zip(*groups, strict=True))]
    return [
        ", ".join(trait for trait, differs in zip(group, varied, strict=True) if trait and differs) for group in groups
    ]


def _rate(curve: Curve, place: float) -> str:
    rate = curve.at(place)
    return f"{formatting.bare_percent(rate.value)} ({formatting.span(rate.interval())})"


def _known(cell: Callable[[], str]) -> str:
    """Return the text of a cell, or a dash where no value is known."""
    try:
        return cell()
    except BadRequest:
        return formatting.MISSING
