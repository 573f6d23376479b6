"""The study's figures: what each shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from robustassay.analysis.geometry import Linearity, Regions, intervals
from robustassay.studies.liu2017 import measures, planes
from robustassay.studies.liu2017.comparisons import best_single, held_out
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.liu2017.tables import MATRIX_TABLES, SHOWN, matrix
from robustassay.studies.page import Figure

Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Histograms:
    """One histogram per panel, by name."""

    values: Mapping[str, Numbers]
    axis: str


@final
@dataclass(frozen=True, eq=False)
class RegionMaps:
    """Decision regions on planes, by name."""

    regions: Mapping[str, Regions]
    along: str
    classes: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False)
class BoundaryMap:
    """The boundary of one class's region, per model."""

    regions: Regions
    title: str
    along: str


@final
@dataclass(frozen=True, eq=False)
class ErrorIntervals:
    """The intervals of a line in which a model is wrong, by the name of the line."""

    wrong: Mapping[str, list[tuple[float, float]]]
    end: float
    axis: str


@final
@dataclass(frozen=True, eq=False)
class SuccessCounts:
    """Successes per model and way of attacking it."""

    counts: Mapping[str, Mapping[str, int]]
    total: int
    axis: str


@final
@dataclass(frozen=True, eq=False)
class LogitLines:
    """The logits of models along a line."""

    logits: Mapping[str, Linearity]
    classes: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False)
class ExampleImage:
    """One image of the data, with its label."""

    pixels: Numbers  # height x width x channels
    title: str


def figures(experiment: LiuExperiment) -> list[Figure]:
    """Return all figures."""
    made = [
        Figure(
            "main",
            "The main finding: all models but one against the best single source",
            ensemble_against_single(experiment),
        )
    ]
    made += [
        Figure(
            f"table{matrix_table.number}",
            f"Table {matrix_table.number.upper()}: {matrix_table.example_set.description}",
            matrix(experiment, matrix_table.example_set),
        )
        for matrix_table in MATRIX_TABLES
        if f"table{matrix_table.number}" in SHOWN and matrix_table.example_set in experiment.settings.example_sets()
    ]
    return [*made, *_geometry(experiment)]


def _geometry(experiment: LiuExperiment) -> list[Figure]:
    """Return Figures 1 to 7."""
    source, target = experiment.reference
    classes, row = experiment.dataset.classes, planes.example(experiment)
    near, far = (planes.regions_around(experiment, reach) for reach in (planes.NEAR, planes.FAR))
    left, wanted = planes.regions_towards_target(experiment)
    along, own = f"gradient of {source}", classes[near.about]
    pixels = experiment.x[row].permute(1, 2, 0).cpu().numpy().astype(float)
    lines = LogitLines(planes.logits_along_gradient(experiment), classes)
    contents: tuple[tuple[str, str, object], ...] = (
        ("1", f"minimal transferable RMSD from {source} to {target}", minimal_rmsd(experiment)),
        ("2", f"the example image of Figures 3, 4 and 7, {experiment.images.ids[row]}", ExampleImage(pixels, own)),
        ("3", "decision regions", RegionMaps({"zoom-in": near, "zoom-out": far}, along, classes)),
        (
            "4",
            "decision boundaries",
            BoundaryMap(planes.closed_regions(experiment), f"region of {own}, the true label", along),
        ),
        (
            "5",
            f"where the models predict the target label; the example was made without {left}",
            BoundaryMap(wanted, f"region of {classes[wanted.about]}, the target", "targeted example"),
        ),
        ("6", f"where other models are wrong along the gradient of {source}", error_intervals(experiment)),
        ("7", "logits along each model's own gradient", lines),
    )
    return [Figure(f"figure{number}", f"Figure {number}: {title}", content) for number, title, content in contents]


def ensemble_against_single(experiment: LiuExperiment) -> SuccessCounts:
    """Compare ensembles with the best single sources, targeted."""
    names = list(experiment.models)
    ours = held_out(experiment.outcomes(ExampleSet("opt", True, True)), names, targeted=True)
    best, sources = best_single(experiment.outcomes(ExampleSet("opt", True, False)), names, targeted=True)
    counts = {
        name: {"all other models": int(ours[:, at].sum()), "best single source": int(best[:, at].sum())}
        for at, name in enumerate(names)
    }
    named = {f"{name}\nbest single:\n{source}": counts[name] for name, source in zip(names, sources, strict=True)}
    return SuccessCounts(named, len(ours), "targeted matching rate")


def minimal_rmsd(experiment: LiuExperiment) -> Histograms:
    """Return the minimal transferable RMSD to the reference target."""
    least = measures.minimal_rmsd(experiment)
    here = least[least["target"] == experiment.reference[1]]
    values = {name.upper(): here.loc[here["method"] == name, "rmsd"].to_numpy(float) for name in ("fg", "fgs")}
    return Histograms(values, "minimal transferable RMSD")


def error_intervals(experiment: LiuExperiment) -> ErrorIntervals:
    """Return the dozen lines with most intervals."""
    found = measures.ERRORS_ALONG_GRADIENT.get(experiment)
    wrong = {
        f"image {sample} on {target}": intervals(line["wrong"].to_numpy(), line["strength"].tolist())
        for target in found["target"].unique()
        for sample, line in found[found["target"] == target].groupby("sample")
    }
    most = max(len(found) for found in wrong.values())
    shown = [name for name, found in wrong.items() if len(found) > 1 or most < 2]
    order = sorted(shown, key=lambda name: -len(wrong[name]))[:12]
    return ErrorIntervals(
        {name: wrong[name] for name in order}, experiment.settings.line_end, "distortion B (RMSD before clipping)"
    )
