"""The study's planes and lines through one image, cached as tables and read back as `analysis.geometry` values."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis.geometry import Linearity, Regions
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.measures import FAST, Measure
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.measures.geometry import Plane, linearity, regions

NEAR: Final = 15.0
FAR: Final = 60.0
FARTHER: Final = 120.0
"""Half side of the planes, in RMSD: around the decision boundaries, where they should be closed, and beyond."""

TARGET: Final = 70.0
"""Half side of the plane of a targeted example, whose region lies away from the image."""

ALONG: Final = tuple(range(-60, 61, 2))
ENSEMBLE: Final = ExampleSet("opt", True, True)


def regions_around(experiment: LiuExperiment, reach: float) -> Regions:
    """Return the decision regions around one image: gradient of the reference source by a random direction."""
    return _to_regions(plane_measure(reach).get(experiment))


def example(experiment: LiuExperiment) -> int:
    """Return the image of Figures 2 to 4 and 7: the first that models are sure of, away from closed boundaries.

    Among the images whose planes are counted, those count first whose boundaries are closed and not next to the image,
    then those whose boundaries are closed; where there is none, the first that models are sure of.
    """
    counted = counted_planes(experiment)
    sure = [row for row in experiment.sure if row < len(counted) and counted[row].closed()]
    inside = [row for row in sure if counted[row].surrounded()]
    return next(iter([*inside, *sure, experiment.sure[0]]))


def _example_inputs(experiment: LiuExperiment) -> tuple[object, ...]:
    """Return what the choice of that image depends on."""
    return "inside, closed and sure", experiment.settings.sizes.planes, experiment.settings.coarse, FAR


def closed_regions(experiment: LiuExperiment) -> Regions:
    """Return the regions on the smaller of two planes in which the boundary of the true label is closed (Figure 4)."""
    return _to_regions(CLOSED.get(experiment))


def counted_planes(experiment: LiuExperiment) -> list[Regions]:
    """Return the regions around several images, on coarse planes like that of Figure 3."""
    return [_to_regions(rows) for _, rows in PLANES.get(experiment).groupby("sample")]


def counted_target_planes(experiment: LiuExperiment) -> list[Regions]:
    """Return the same on planes like that of Figure 5."""
    return [_to_regions(rows) for _, rows in TARGET_PLANES.get(experiment).groupby("sample")]


def regions_towards_target(experiment: LiuExperiment) -> tuple[str, Regions]:
    """Return the target class's regions in the plane of an ensemble's targeted example, and the model left out.

    The image is the first whose example transfers to that model, if there is one.
    """
    return _target_image(experiment)[0], _to_regions(TARGET_PLANE.get(experiment))


def logits_along_gradient(experiment: LiuExperiment) -> Mapping[str, Linearity]:
    """Return the logits of every model along its own gradient, for one image (Figure 7)."""
    found = LINEARITY.get(experiment)
    return {
        name: Linearity(
            np.array(ALONG, float),
            own.pivot(index="at", columns="class", values="value").to_numpy(float),
            int(own["label"].iloc[0]),
        )
        for name in experiment.models
        for own in [found[found["model"] == name]]
    }


def plane_measure(reach: float) -> Measure:
    """Return the table behind `regions_around`."""

    def make(experiment: LiuExperiment) -> pd.DataFrame:
        return _around(experiment, example(experiment), reach, experiment.settings.grid)

    return Measure(
        "plane",
        f"decision regions, RMSD {reach:g}",
        lambda it: (it.reference, reach, it.settings.grid, *_example_inputs(it)),
        make,
    )


def _around(experiment: LiuExperiment, row: int, reach: float, grid: int) -> pd.DataFrame:
    """Tabulate regions around an image: gradient of the reference source by a random direction."""
    direction = experiment.direction(FAST[0], experiment.reference[0])[row]
    plane = Plane.through(experiment.x[row], direction, experiment.seed, f"around/{experiment.images.ids[row]}")
    label = int(experiment.images.labels[row])
    return _to_table(regions(experiment.targets, plane, label, reach, grid))


def _closed(experiment: LiuExperiment) -> pd.DataFrame:
    far = plane_measure(FAR).get(experiment)
    if _to_regions(far).closed():
        return far
    return _around(experiment, example(experiment), FARTHER, experiment.settings.grid)


def _planes(experiment: LiuExperiment) -> pd.DataFrame:
    rows, grid = range(min(experiment.settings.sizes.planes, len(experiment.images))), experiment.settings.coarse
    return pd.concat([_around(experiment, row, FAR, grid).assign(sample=row) for row in rows], ignore_index=True)


def _target_image(experiment: LiuExperiment) -> tuple[str, int]:
    """Return the model left out, and the row of the image."""
    left_out = experiment.reference[1]
    outcomes = experiment.outcomes(ENSEMBLE)
    own = outcomes[(outcomes["source"] == f"-{left_out}") & (outcomes["target"] == left_out)]
    transferred = own.loc[own["aim_rank"] == 0, "sample"]
    return left_out, int(transferred.iloc[0]) if len(transferred) else 0


def _towards(experiment: LiuExperiment, row: int, grid: int) -> pd.DataFrame:
    """Tabulate the target class's regions around an image: targeted example of an ensemble by a random direction."""
    made = experiment.examples(ENSEMBLE, f"-{experiment.reference[1]}")
    direction = (made.x_adv[row] - made.x[row]).to(experiment.x.device)
    plane = Plane.through(experiment.x[row], direction, experiment.seed, f"towards/{experiment.images.ids[row]}")
    target = int(experiment.goal(True).labels[row])
    return _to_table(regions(experiment.targets, plane, target, TARGET, grid))


def _target_plane(experiment: LiuExperiment) -> pd.DataFrame:
    return _towards(experiment, _target_image(experiment)[1], experiment.settings.grid)


def _target_planes(experiment: LiuExperiment) -> pd.DataFrame:
    rows, grid = range(min(experiment.settings.sizes.planes, len(experiment.images))), experiment.settings.coarse
    return pd.concat([_towards(experiment, row, grid).assign(sample=row) for row in rows], ignore_index=True)


def _target_inputs(experiment: LiuExperiment) -> tuple[object, ...]:
    left_out, row = _target_image(experiment)
    return f"-{left_out}", row, TARGET, experiment.settings.grid


def _linearity(experiment: LiuExperiment) -> pd.DataFrame:
    row, frames = example(experiment), []
    label = int(experiment.images.labels[row])
    for name, target in experiment.targets.items():
        direction = experiment.direction(FAST[0], name)[row]
        found = linearity(target, experiment.x[row], direction, label, ALONG, in_box=True)
        frames.append(pd.DataFrame(found.logits).melt(ignore_index=False, var_name="class").assign(model=name))
    whole = pd.concat(frames).reset_index(names="at").assign(label=label)
    return whole.astype({"class": int})


TARGET_PLANE: Final = Measure("target-plane", "target regions", _target_inputs, _target_plane, ENSEMBLE)
LINEARITY: Final = Measure("linearity", "logits along the gradient", _example_inputs, _linearity)
CLOSED: Final = Measure(
    "closed-plane",
    "decision boundaries",
    lambda it: (it.reference, FAR, FARTHER, it.settings.grid, *_example_inputs(it)),
    _closed,
)
PLANES: Final = Measure(
    "planes",
    "regions around several images",
    lambda it: (it.reference, it.settings.sizes.planes, it.settings.coarse, FAR),
    _planes,
)
TARGET_PLANES: Final = Measure(
    "target-planes",
    "target regions of several images",
    lambda it: (it.reference, it.settings.sizes.planes, it.settings.coarse, TARGET),
    _target_planes,
    ENSEMBLE,
)


def _to_table(found: Regions) -> pd.DataFrame:
    v, u = (grid.ravel() for grid in np.meshgrid(found.ticks, found.ticks, indexing="ij"))
    return pd.concat(
        [
            pd.DataFrame(
                {"model": name, "v": v, "u": u, "label": predicted.ravel(), "margin": found.margins[name].ravel()}
            )
            for name, predicted in found.labels.items()
        ],
        ignore_index=True,
    ).assign(about=found.about)


def _to_regions(frame: pd.DataFrame) -> Regions:
    names = frame["model"].unique().tolist()
    ticks = np.unique(frame["u"].to_numpy(float))
    side = len(ticks)
    parts = {name: frame[frame["model"] == name] for name in names}
    return Regions(
        ticks,
        int(frame["about"].iloc[0]),
        {name: part["label"].to_numpy(np.int64).reshape(side, side) for name, part in parts.items()},
        {name: part["margin"].to_numpy(float).reshape(side, side) for name, part in parts.items()},
    )
