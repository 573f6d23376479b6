"""What the study's pictures show; drawing them is the report's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
import numpy.typing as npt

from robustassay.analysis.geometry import Linearity, Regions, intervals
from robustassay.analysis.transfer import TransferMatrix
from robustassay.studies.liu2017 import planes, probes
from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.findings import best_single, held_out
from robustassay.studies.liu2017.plan import Kind
from robustassay.studies.liu2017.tables import MATRICES, matrix

Numbers = npt.NDArray[np.float64]
SHOWN: Final = ("table1a", "table1b", "table2", "table3", "table4")
"""The tables that are pictures as well, and that a terminal shows."""


@final
@dataclass(frozen=True, eq=False)
class Distributions:
    """One distribution a panel, of the values by name."""

    values: Mapping[str, Numbers]
    axis: str


@final
@dataclass(frozen=True, eq=False)
class Zooms:
    """Decision regions, near and far."""

    regions: Mapping[str, Regions]
    along: str
    classes: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False)
class Boundaries:
    """Where each model starts to say something else."""

    regions: Regions
    title: str
    along: str


@final
@dataclass(frozen=True, eq=False)
class Rays:
    """From where to where along a ray a model is wrong, by the name of the ray."""

    wrong: Mapping[str, list[tuple[float, float]]]
    end: float
    axis: str


@final
@dataclass(frozen=True, eq=False)
class Versus:
    """Counts of successes by model for two ways of attacking it."""

    counts: Mapping[str, Mapping[str, int]]
    total: int
    axis: str


@final
@dataclass(frozen=True, eq=False)
class Lines:
    """The logits of models along a ray."""

    logits: Mapping[str, Linearity]
    classes: tuple[str, ...]


Content = TransferMatrix | Distributions | Zooms | Boundaries | Rays | Versus | Lines


@final
@dataclass(frozen=True)
class Figure:
    """A picture to be drawn."""

    name: str
    title: str
    content: Content = field(repr=False)


def figures(bench: Bench) -> list[Figure]:
    """Collect all pictures."""
    source, target = probes.reference(bench)
    made = [Figure("main", "The main finding: all models but one against the best single source", versus(bench))]
    made += [
        Figure(f"table{cells.number}", f"Table {cells.number.upper()}: {cells.kind.says}", matrix(bench, cells.kind))
        for cells in MATRICES
        if f"table{cells.number}" in SHOWN
    ]
    near, far = (planes.around(bench, reach) for reach in (planes.NEAR, planes.FAR))
    left, wanted = planes.towards_target(bench)
    lines = Lines(planes.linear(bench), bench.dataset.classes)
    way, own = f"gradient of {source}", bench.dataset.classes[near.about]
    return [
        *made,
        Figure("figure1", f"Figure 1: minimal transferable RMSD from {source} to {target}", distances(bench)),
        Figure("figure3", "Figure 3: decision regions", Zooms({"near": near, "far": far}, way, bench.dataset.classes)),
        Figure("figure4", "Figure 4: decision boundaries", Boundaries(near, f"region of {own}, the true label", way)),
        Figure(
            "figure5",
            f"Figure 5: where the models give the target label; the examples were made without {left}",
            Boundaries(wanted, f"region of {bench.dataset.classes[wanted.about]}, the target", "targeted example"),
        ),
        Figure("figure6", f"Figure 6: where other models are wrong along the gradient of {source}", rays(bench)),
        Figure("figure7", "Figure 7: logits along each model's own gradient", lines),
    ]


def versus(bench: Bench) -> Versus:
    """Set the ensembles beside the best single sources, targeted."""
    names = list(bench.members)
    ours = held_out(bench.outcomes(Kind("opt", True, True)), names, targeted=True)
    best, sources = best_single(bench.outcomes(Kind("opt", True, False)), names, targeted=True)
    counts = {
        name: {"all other models": int(ours[:, at].sum()), "best single source": int(best[:, at].sum())}
        for at, name in enumerate(names)
    }
    named = {f"{name}\n(best: {source})": counts[name] for name, source in zip(names, sources, strict=True)}
    return Versus(named, len(ours), "targeted matching rate")


def distances(bench: Bench) -> Distributions:
    """Return the minimal transferable RMSD to the reference target."""
    least = probes.least(bench)
    here = least[least["target"] == probes.reference(bench)[1]]
    values = {name.upper(): here.loc[here["method"] == name, "rmsd"].to_numpy(float) for name in ("fg", "fgs")}
    return Distributions(values, "minimal transferable RMSD")


def rays(bench: Bench) -> Rays:
    """Return the rays with most intervals first, a dozen at most."""
    found = probes.along(bench)
    wrong = {
        f"image {sample} on {target}": intervals(ray["wrong"].to_numpy(), ray["strength"].tolist())
        for target in found["target"].unique()
        for sample, ray in found[found["target"] == target].groupby("sample")
    }
    order = sorted(wrong, key=lambda name: -len(wrong[name]))[:12]
    return Rays({name: wrong[name] for name in order}, bench.scale.ray_end, "distortion B (RMSD before clipping)")
