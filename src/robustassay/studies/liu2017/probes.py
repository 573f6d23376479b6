"""What the study asks beside attacks: random noise, the least distance along a ray, and what lies along it."""

from typing import Final

import numpy as np
import pandas as pd

from robustassay.rng import Streams
from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.plan import Kind
from robustassay.studies.measures import geometry, line_search
from robustassay.threat import labels_of
from robustassay.threat.rmsd import rmsd

DEVIATIONS: Final = tuple(range(5, 45, 5))
FAST: Final = (Kind("fg", False, False), Kind("fgs", False, False))
RAY_POINTS: Final = 121
"""Places along a ray that intervals are looked for at; the search of the least distance has its own, finer ones."""


def reference(bench: Bench) -> tuple[str, str]:
    """Return the source and the target that the paper would show: a VGG, and the first other model."""
    source = next((name for name in bench.members if "vgg" in name.lower()), next(iter(bench.members)))
    return source, next(name for name in bench.members if name != source)


def noise(bench: Bench) -> pd.DataFrame:
    """Return how models stand up to Gaussian noise: columns std, rmsd, model, right, matched, total (Table 11)."""
    return bench.cache.frame(
        "noise",
        [bench.told(FAST[0]), bench.scale.draws, DEVIATIONS],
        lambda: bench.watched("Gaussian noise", lambda: _noise(bench)),
    )


def least(bench: Bench) -> pd.DataFrame:
    """Return the minimal transferable RMSD from the reference source: columns method, target, sample, rmsd (Figure 1).

    The image must fool the source too. The row of the source itself is what fools it alone.
    """
    told = [bench.told(FAST[0]), reference(bench), bench.scale.ray_step, bench.scale.ray_end]
    return bench.cache.frame("least", told, lambda: bench.watched("minimal transferable RMSD", lambda: _least(bench)))


def along(bench: Bench) -> pd.DataFrame:
    """Return where on each image's FG ray from the reference source others are wrong (Figure 6).

    Columns: target, sample, strength, wrong.
    """
    told = [bench.told(FAST[0]), reference(bench)[0], RAY_POINTS, bench.scale.ray_end]
    return bench.cache.frame("along", told, lambda: bench.watched("along the gradient", lambda: _along(bench)))


def cosines(bench: Bench) -> pd.DataFrame:
    """Return the mean cosine between the gradients of each two models, with a column of names first (Table 33)."""

    def make() -> pd.DataFrame:
        found = geometry.gradient_cosines(bench.networks, bench.x, bench.goal(targeted=False))
        return found.reset_index(names="model")

    return bench.cache.frame("cosines", bench.told(FAST[0]), lambda: bench.watched("gradient cosines", make))


def _noise(bench: Bench) -> pd.DataFrame:
    labels, aims, found = bench.goal(False).labels, bench.goal(True).labels, []
    for std in DEVIATIONS:
        streams = Streams.of(bench.seed, [f"noise/{std}/{sample}" for sample in bench.images.ids], bench.x.device)
        far, right, matched = 0.0, dict.fromkeys(bench.members, 0), dict.fromkeys(bench.members, 0)
        for _ in range(bench.scale.draws):
            noisy = (bench.x + std / 255 * streams.normal(*bench.x.shape[1:])).clamp(0, 1)
            far += float(rmsd(noisy, bench.x).mean()) / bench.scale.draws
            for name, network in bench.networks.items():
                said = labels_of(network.logits(noisy))
                right[name] += int((said == labels).sum())
                matched[name] += int((said == aims).sum())
        total = bench.scale.draws * len(labels)
        found += [(std, far, name, right[name], matched[name], total) for name in bench.members]
    return pd.DataFrame(found, columns=["std", "rmsd", "model", "right", "matched", "total"])


def _least(bench: Bench) -> pd.DataFrame:
    source, _ = reference(bench)
    found, goal, scale = [], bench.goal(targeted=False), bench.scale
    for kind in FAST:
        way = bench.direction(kind, source)
        for target, network in bench.networks.items():
            both = [bench.networks[source]] if target == source else [bench.networks[source], network]
            far = line_search.least_rmsd(both, bench.x, way, goal, scale.ray_step, scale.ray_end)
            found += [(kind.method, target, at, value) for at, value in enumerate(far.tolist())]
    return pd.DataFrame(found, columns=["method", "target", "sample", "rmsd"])


def _along(bench: Bench) -> pd.DataFrame:
    source, _ = reference(bench)
    strengths = np.linspace(0, bench.scale.ray_end, RAY_POINTS).tolist()
    way, goal, found = bench.direction(FAST[0], source), bench.goal(targeted=False), []
    for target, network in bench.networks.items():
        if target != source:
            wrong = line_search.reached_along(network, bench.x, way, goal, strengths)
            columns = {"sample": np.repeat(range(len(wrong)), len(strengths)), "strength": strengths * len(wrong)}
            found.append(pd.DataFrame({"target": target, **columns, "wrong": wrong.flatten().cpu().numpy()}))
    return pd.concat(found, ignore_index=True)
