"""What the study measures beside attacks: random noise, minimal distances and gradient directions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import numpy as np
import pandas as pd
import torch

from robustassay.rng import Streams
from robustassay.studies.cache import CachedTable
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.measures import geometry, line_search
from robustassay.threat import labels_of
from robustassay.threat.rmsd import rmsd

DEVIATIONS: Final = tuple(range(5, 45, 5))
FAST: Final = (ExampleSet("fg", False, False), ExampleSet("fgs", False, False))
LINE_POINTS: Final = 121
"""Points of a line on which intervals are searched; the search of the minimal distance has its own, finer ones."""


@final
@dataclass(frozen=True)
class Measure:
    """One cached table of the study."""

    name: str
    title: str
    inputs: Callable[[LiuExperiment], tuple[object, ...] | None]  # what it depends on beside a set of examples
    make: Callable[[LiuExperiment], pd.DataFrame]
    needs: ExampleSet = FAST[0]  # the set whose inputs it shares

    def table(self, experiment: LiuExperiment) -> CachedTable:
        """Return the cached table."""
        inputs = self.inputs(experiment)
        shared = experiment.depends_on(self.needs)
        return experiment.table(self.name, shared if inputs is None else [shared, *inputs])

    def get(self, experiment: LiuExperiment) -> pd.DataFrame:
        """Read the table, or compute it."""
        return self.table(experiment).get(lambda: self.make(experiment))


def _noise(experiment: LiuExperiment, std: int) -> pd.DataFrame:
    x, draws = experiment.x, experiment.settings.sizes.draws
    labels, targets = experiment.goal(False).labels, experiment.goal(True).labels
    streams = Streams.of(experiment.seed, [f"noise/{std}/{sample}" for sample in experiment.images.ids], x.device)
    distance, zeros = 0.0, torch.zeros(len(experiment.models), len(x), dtype=torch.int64, device=x.device)
    right, matched = zeros, zeros
    for _ in range(draws):
        noisy = (x + std / 255 * streams.normal(*x.shape[1:])).clamp(0, 1)
        distance += float(rmsd(noisy, x).mean()) / draws
        predicted = torch.stack([labels_of(target.logits(noisy)) for target in experiment.targets.values()])
        right, matched = right + (predicted == labels), matched + (predicted == targets)
    columns = {
        "model": np.repeat(list(experiment.models), len(x)),
        "sample": list(range(len(x))) * len(right),
        "right": right.flatten().tolist(),
        "matched": matched.flatten().tolist(),
    }
    return pd.DataFrame({"std": std, "rmsd": distance, **columns, "total": draws})


def _minimal_rmsd(experiment: LiuExperiment, fast: ExampleSet) -> pd.DataFrame:
    source, _ = experiment.reference
    targets, settings = experiment.targets, experiment.settings
    groups = {name: [target] if name == source else [targets[source], target] for name, target in targets.items()}
    found = line_search.minimal_rmsds(
        groups,
        experiment.x,
        experiment.direction(fast, source),
        experiment.goal(targeted=False),
        settings.sizes.line_step,
        settings.line_end,
    )
    rows = [(fast.method, name, at, value) for name in groups for at, value in enumerate(found[name].tolist())]
    return pd.DataFrame(rows, columns=["method", "target", "sample", "rmsd"])


def _errors_along(experiment: LiuExperiment) -> pd.DataFrame:
    source, _ = experiment.reference
    strengths = np.linspace(0, experiment.settings.line_end, LINE_POINTS).tolist()
    direction, goal, found = experiment.direction(FAST[0], source), experiment.goal(targeted=False), []
    for name, target in experiment.targets.items():
        if name != source:
            wrong = line_search.reached_along(target, experiment.x, direction, goal, strengths)
            columns = {"sample": np.repeat(range(len(wrong)), len(strengths)), "strength": strengths * len(wrong)}
            found.append(pd.DataFrame({"target": name, **columns, "wrong": wrong.flatten().cpu().numpy()}))
    return pd.concat(found, ignore_index=True)


def _cosines(experiment: LiuExperiment) -> pd.DataFrame:
    found = geometry.gradient_cosines(experiment.targets, experiment.x, experiment.goal(targeted=False))
    return found.reset_index(names="model")


def _diameters(experiment: LiuExperiment) -> pd.DataFrame:
    """Search how far each model keeps the true label along and against the gradient, and along random directions."""
    source, _ = experiment.reference
    gradient = experiment.direction(FAST[0], source)
    drawn = Streams.of(experiment.seed, [f"across/{sample}" for sample in experiment.images.ids], gradient.device)
    across = geometry.unit(drawn.normal(*gradient.shape[1:]))
    lines = {"gradient": gradient, "against": -gradient, "random": across, "random back": -across}
    labels, frames = experiment.goal(targeted=False).labels, []
    for name, target in experiment.targets.items():
        for line, direction in lines.items():
            kept = line_search.reach(target, experiment.x, direction, labels, 1.0, experiment.settings.line_end)
            columns = {"model": name, "line": line, "sample": range(len(kept)), "reach": kept.tolist()}
            frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


NOISE: Final = tuple(
    Measure(f"noise{std}", f"Gaussian noise, {std}", lambda it: (it.settings.sizes.draws,), partial(_noise, std=std))
    for std in DEVIATIONS
)
MINIMAL_RMSD: Final = tuple(
    Measure(
        f"least-{fast.method}",
        f"minimal transferable RMSD, {fast.method.upper()}",
        lambda it: (it.reference, it.settings.sizes.line_step, it.settings.line_end),
        partial(_minimal_rmsd, fast=fast),
    )
    for fast in FAST
)


def noise(experiment: LiuExperiment) -> pd.DataFrame:
    """Return accuracy under Gaussian noise (Table 11): columns std, rmsd, model, right, matched, total."""
    by_image = noise_by_image(experiment)
    return by_image.groupby(["std", "rmsd", "model"], sort=False)[["right", "matched", "total"]].sum().reset_index()


def noise_by_image(experiment: LiuExperiment) -> pd.DataFrame:
    """Return the same per image, with a column sample."""
    return pd.concat([measure.get(experiment) for measure in NOISE], ignore_index=True)


def minimal_rmsd(experiment: LiuExperiment) -> pd.DataFrame:
    """Return the minimal transferable RMSD from the reference source (Figure 1): method, target, sample, rmsd.

    The image must be misclassified by the source too. The row of the source itself is about the source alone.
    """
    return pd.concat([measure.get(experiment) for measure in MINIMAL_RMSD], ignore_index=True)


ERRORS_ALONG_GRADIENT: Final = Measure(
    "along",
    "errors along the gradient",
    lambda it: (it.reference[0], LINE_POINTS, it.settings.line_end),
    _errors_along,
)
"""Where other models are wrong along the reference source's gradient (Figure 6): target, sample, strength, wrong."""

COSINES: Final = Measure("cosines", "gradient cosines", lambda it: None, _cosines)
"""The mean cosine between the gradients of each two models (Table 33); the first column names the model."""

DIAMETERS: Final = Measure(
    "diameters", "diameters of regions", lambda it: (it.reference[0], it.settings.line_end), _diameters
)
"""How far from the image a model keeps the true label: columns model, line, sample, reach (infinite beyond the end).

As in Figure 4, lines leave the pixel box: the gradient of the reference source, and a random direction.
"""
