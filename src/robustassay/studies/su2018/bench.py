"""What was measured, looked up by model, goal and attack, and the numbers that tables, figures and findings share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, final

import numpy as np
import pandas as pd

from robustassay.analysis.rates import Rate
from robustassay.evaluation import Result
from robustassay.studies.su2018.plan import Column, GoalName, Model, Scale, smallest_of

RESAMPLES: Final = 4_000
SMALL: Final = 32 * 32


@final
@dataclass(frozen=True)
class Metric:
    """A measure of robustness that every model has one number of."""

    key: str
    title: str
    unit: str


LINF: Final = Metric("linf", "I-FGSM, L∞ distortion", "mean L∞ distortion, pixels in [0, 1]")
LTWO: Final = Metric("l2", "C&W, L2 distortion", "mean L2 distortion / pixels")
CLEVER: Final = Metric("clever", "CLEVER score (an estimate)", "mean CLEVER estimate, L2")
RMSD: Final = Metric("rmsd", "C&W, RMSD", "mean RMSD, pixels in [0, 1]")
"""L2 over pixels falls as images grow, at one and the same change a pixel: beside it, where sizes differ."""


@final
@dataclass(frozen=True, eq=False)
class Bench:
    """The finished work."""

    models: tuple[Model, ...]
    scale: Scale
    results: Mapping[tuple[str, ...], Result] = field(repr=False)
    slopes: Mapping[str, pd.DataFrame] = field(repr=False)
    outcomes: Mapping[tuple[GoalName, str], pd.DataFrame] = field(repr=False)
    pixels: Mapping[str, int] = field(default_factory=dict)  # of the images that each model sees; 32 x 32 by default

    @property
    def goal(self) -> GoalName:
        """The goal that scatter plots are about: a random target, as in the paper, where there is one."""
        return "random" if "random" in self.scale.goals else self.scale.goals[0]

    def accuracy(self, model: Model) -> float:
        """Return the accuracy on the whole test set, where the model's card knows it, or on the images at hand."""
        if model.accuracy is not None:
            return model.accuracy
        longest = max((result.records for (name, *_), result in self.results.items() if name == model.name), key=len)
        return float(longest["clean_ok"].mean())

    def success(self, model: Model, goal: GoalName, column: Column) -> Rate | None:
        """Count successes among the images classified correctly; at any distance, for attacks that seek the least."""
        result = self.results.get((model.name, goal, column.name))
        if result is None:
            return None
        known = result.records[result.records["clean_ok"].astype(bool)]
        won = known["valid"].fillna(False) if column.seeks_minimum else known["success"]
        return Rate(int(won.astype(bool).sum()), len(known))

    def distances(self, model: Model, goal: GoalName, column_name: str) -> pd.Series:
        """Return the distance of each success by sample id, of images classified correctly."""
        result = self.results.get((model.name, goal, column_name))
        if result is None:
            return pd.Series(dtype=float)
        records = result.records
        won = records["clean_ok"].astype(bool) & records["valid"].fillna(False).astype(bool)
        return records[won].set_index("sample_id")["distance"].astype(float)

    def pixels_of(self, model: Model) -> int:
        """Return by how many pixels a model's L2 distances are divided."""
        return self.pixels.get(model.name, SMALL)

    def column_of(self, metric: Metric) -> str:
        """Name the attack whose distances a metric is made of; CLEVER has none."""
        least = f"C&W κ={self.scale.kappas[0]}"
        return {LINF: smallest_of(self.scale.iterations[-1]), LTWO: least, RMSD: least}.get(metric, "")

    @property
    def distortions(self) -> tuple[Metric, ...]:
        """The metrics that verdicts rest on."""
        return (LINF, LTWO, RMSD) if len({self.pixels_of(model) for model in self.models}) > 1 else (LINF, LTWO)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics; CLEVER estimates, so no verdict rests on it."""
        return (*self.distortions, CLEVER)

    def values(self, model: Model, metric: Metric, goal: GoalName | None = None) -> pd.Series:
        """Return a metric's value of each image by sample id."""
        goal = goal or self.goal
        if metric is not CLEVER:
            pixels = self.pixels_of(model)
            unit = {LTWO: pixels, RMSD: math.sqrt(3 * pixels)}.get(metric, 1)
            return self.distances(model, goal, self.column_of(metric)) / unit
        found = self.slopes.get(model.name)
        if found is None or "estimate" not in found or goal == "untargeted":
            return pd.Series(dtype=float)
        return found[found["aim"] == goal].set_index("sample_id")["estimate"].astype(float)

    @cached_property
    def robustness(self) -> pd.DataFrame:
        """One row a model and metric: its mean, bootstrap interval and number of images, beside what it is made of."""
        rows = []
        for metric in self.metrics:
            for model in self.models:
                values = self.values(model, metric)
                if not len(values):
                    continue
                low, high = bootstrap(values.to_numpy(float))
                rows.append(
                    {
                        "metric": metric.key,
                        "model": model.label,
                        "family": model.family,
                        "parameters": model.parameters,
                        "depth": model.depth,
                        "accuracy": self.accuracy(model),
                        "value": float(values.mean()),
                        "median": float(values.median()),
                        "low": low,
                        "high": high,
                        "images": len(values),
                    }
                )
        return pd.DataFrame(rows)

    def of_metric(self, metric: Metric) -> pd.DataFrame:
        """Return the models' rows of one metric."""
        whole = self.robustness
        return whole[whole["metric"] == metric.key].reset_index(drop=True) if len(whole) else whole


def bootstrap(values: np.ndarray, confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean; NaNs stand for values that are not known."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    picks = np.random.default_rng(seed).integers(len(known), size=(RESAMPLES, len(known)))
    low, high = np.quantile(known[picks].mean(1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
