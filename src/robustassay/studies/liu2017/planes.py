"""The study's planes and rays through one image, kept as tables and read back as `analysis.geometry` has them."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis.geometry import Linearity, Regions
from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.plan import Kind
from robustassay.studies.liu2017.probes import FAST, reference
from robustassay.studies.measures.geometry import Plane, linearity, regions

NEAR: Final = 12.0
FAR: Final = 60.0
"""How far planes reach, in RMSD: around the boundaries, and where hardly anything of the image is left."""

TARGET: Final = 36.0
"""The same of the plane of a targeted example, whose region lies aside of the image."""

ALONG: Final = tuple(range(-60, 61, 2))
ENSEMBLE: Final = Kind("opt", True, True)


def around(bench: Bench, reach: float) -> Regions:
    """Return the decision regions around one image: gradient of the reference source by a random direction."""

    def make() -> pd.DataFrame:
        source, _ = reference(bench)
        plane = Plane.through(bench.x[0], bench.direction(FAST[0], source)[0], bench.seed, "around")
        found = regions(bench.networks, plane, int(bench.images.labels[0]), reach, bench.scale.grid)
        return _flat(found)

    told = [bench.told(FAST[0]), reference(bench), reach, bench.scale.grid]
    return _square(bench.cache.frame("plane", told, lambda: bench.watched("decision regions", make)))


def towards_target(bench: Bench) -> tuple[str, Regions]:
    """Return the regions of the target class on the way to a targeted example of all models but one, and that one.

    The image is the first whose example fools the model left out as well, if there is one.
    """
    left = f"-{reference(bench)[1]}"
    outcomes = bench.outcomes(ENSEMBLE)
    seen = outcomes[(outcomes["source"] == left) & (outcomes["target"] == left[1:])]
    hit = seen.loc[seen["aim_rank"] == 0, "sample"]
    at = int(hit.iloc[0]) if len(hit) else 0

    def make() -> pd.DataFrame:
        made = bench.examples(ENSEMBLE, left)
        plane = Plane.through(bench.x[at], (made.x_adv[at] - made.x[at]).to(bench.x.device), bench.seed, "towards")
        return _flat(regions(bench.networks, plane, int(bench.goal(True).labels[at]), TARGET, bench.scale.grid))

    told = [bench.told(ENSEMBLE), left, at, TARGET, bench.scale.grid]
    found = bench.cache.frame("target-plane", told, lambda: bench.watched("target regions", make))
    return left[1:], _square(found)


def linear(bench: Bench) -> Mapping[str, Linearity]:
    """Return the logits of every model along its own gradient, for one image (Figure 7)."""

    def make() -> pd.DataFrame:
        label, frames = int(bench.images.labels[0]), []
        for name, network in bench.networks.items():
            way = bench.direction(FAST[0], name)[0]
            found = linearity(network, bench.x[0], way, label, ALONG, in_box=True)
            frames.append(pd.DataFrame(found.logits).melt(ignore_index=False, var_name="class").assign(model=name))
        whole = pd.concat(frames).reset_index(names="at").assign(label=label)
        return whole.astype({"class": int})

    found = bench.cache.frame("linearity", bench.told(FAST[0]), lambda: bench.watched("logits along a ray", make))
    return {
        name: Linearity(
            np.array(ALONG, float),
            own.pivot(index="at", columns="class", values="value").to_numpy(float),
            int(own["label"].iloc[0]),
        )
        for name in bench.members
        for own in [found[found["model"] == name]]
    }


def _flat(found: Regions) -> pd.DataFrame:
    v, u = (grid.ravel() for grid in np.meshgrid(found.ticks, found.ticks, indexing="ij"))
    return pd.concat(
        [
            pd.DataFrame({"model": name, "v": v, "u": u, "label": said.ravel(), "margin": found.margins[name].ravel()})
            for name, said in found.labels.items()
        ],
        ignore_index=True,
    ).assign(about=found.about)


def _square(frame: pd.DataFrame) -> Regions:
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
