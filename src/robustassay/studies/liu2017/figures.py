"""The study's figures: what each shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from robustassay.analysis.geometry import Linearity, Regions, intervals
from robustassay.studies.liu2017 import measures, planes
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.findings import best_single, held_out
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


def figures(experiment: LiuExperiment) -> list[Figure]:
    """Return all figures."""
    source, target = measures.reference(experiment)
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
        if f"table{matrix_table.number}" in SHOWN
    ]
    near, far = (planes.regions_around(experiment, reach) for reach in (planes.NEAR, planes.FAR))
    left, wanted = planes.regions_towards_target(experiment)
    lines = LogitLines(planes.logits_along_gradient(experiment), experiment.dataset.classes)
    along, own = f"gradient of {source}", experiment.dataset.classes[near.about]
    return [
        *made,
        Figure("figure1", f"Figure 1: minimal transferable RMSD from {source} to {target}", minimal_rmsd(experiment)),
        Figure(
            "figure3",
            "Figure 3: decision regions",
            RegionMaps({"near": near, "far": far}, along, experiment.dataset.classes),
        ),
        Figure(
            "figure4", "Figure 4: decision boundaries", BoundaryMap(near, f"region of {own}, the true label", along)
        ),
        Figure(
            "figure5",
            f"Figure 5: where the models give the target label; the examples were made without {left}",
            BoundaryMap(
                wanted, f"region of {experiment.dataset.classes[wanted.about]}, the target", "targeted example"
            ),
        ),
        Figure(
            "figure6",
            f"Figure 6: where other models are wrong along the gradient of {source}",
            error_intervals(experiment),
        ),
        Figure("figure7", "Figure 7: logits along each model's own gradient", lines),
    ]


def ensemble_against_single(experiment: LiuExperiment) -> SuccessCounts:
    """Compare ensembles with the best single sources, targeted."""
    names = list(experiment.models)
    ours = held_out(experiment.outcomes(ExampleSet("opt", True, True)), names, targeted=True)
    best, sources = best_single(experiment.outcomes(ExampleSet("opt", True, False)), names, targeted=True)
    counts = {
        name: {"all other models": int(ours[:, at].sum()), "best single source": int(best[:, at].sum())}
        for at, name in enumerate(names)
    }
    named = {f"{name}\n(best: {source})": counts[name] for name, source in zip(names, sources, strict=True)}
    return SuccessCounts(named, len(ours), "targeted matching rate")


def minimal_rmsd(experiment: LiuExperiment) -> Histograms:
    """Return the minimal transferable RMSD to the reference target."""
    least = measures.MINIMAL_RMSD.get(experiment)
    here = least[least["target"] == measures.reference(experiment)[1]]
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
    order = sorted(wrong, key=lambda name: -len(wrong[name]))[:12]
    return ErrorIntervals(
        {name: wrong[name] for name in order}, experiment.settings.line_end, "distortion B (RMSD before clipping)"
    )
