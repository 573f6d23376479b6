"""The results by model, goal and attack, and the numbers that tables, figures and findings share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, final

import numpy as np
import pandas as pd

from robustassay.analysis.law import Scatter
from robustassay.analysis.rates import Rate
from robustassay.evaluation import Result
from robustassay.studies.su2018.models import StudiedModel
from robustassay.studies.su2018.settings import SMALLEST, GoalName, SuAttack, SuSettings
from robustassay.studies.task import Key

RESAMPLES: Final = 4_000
SMALL: Final = 32 * 32


@final
@dataclass(frozen=True)
class Metric:
    """A measure of robustness: one number per model."""

    key: str
    title: str
    unit: str


LINF: Final = Metric("linf", "I-FGSM, L∞ distortion", "mean L∞ distortion, pixels in [0, 1]")
LTWO: Final = Metric("l2", "C&W, L2 distortion", "mean L2 distortion / pixels")
CLEVER: Final = Metric("clever", "CLEVER score (an estimate)", "mean CLEVER estimate, L2")
RMSD: Final = Metric("rmsd", "C&W, RMSD", "mean RMSD, pixels in [0, 1]")
"""At the same change per pixel, L2 over pixels falls as images grow and RMSD does not: where sizes differ, L2 over
pixels measures the size of the input too, and no verdict uses it."""


@final
@dataclass(frozen=True, eq=False)
class SuMeasurements:
    """The results of all tasks."""

    models: tuple[StudiedModel, ...]
    settings: SuSettings
    results: Mapping[Key, Result] = field(repr=False)
    clever: Mapping[str, pd.DataFrame] = field(repr=False)
    outcomes: Mapping[tuple[GoalName, str], pd.DataFrame] = field(repr=False)
    pixels: Mapping[str, int] = field(default_factory=dict)  # of each model's input; 32 x 32 by default
    left: tuple[Key, ...] = ()  # tasks that are not finished
    finished: int = 0  # tasks that are

    @property
    def goal(self) -> GoalName:
        """The goal of the scatter plots: a random target, as in the paper, if it was run."""
        return "random" if "random" in self.settings.goals else self.settings.goals[0]

    def accuracy(self, model: StudiedModel) -> float:
        """Return the accuracy on the whole test set where known, else on the study's images."""
        if model.accuracy is not None:
            return model.accuracy
        return float(self._longest(model)["clean_ok"].mean())

    def success(self, model: StudiedModel, goal: GoalName, attack: SuAttack) -> Rate | None:
        """Count successes among correctly classified images; at any distance for minimum-distance attacks."""
        if (model.name, goal, attack.name) not in self.results:
            return None
        won = self.successes(model, goal, attack)
        return Rate(int(won.sum()), len(won))

    def successes(self, model: StudiedModel, goal: GoalName, attack: SuAttack) -> pd.Series:
        """Return whether the attack succeeded by sample id, for correctly classified images."""
        result = self.results.get((model.name, goal, attack.name))
        if result is None:
            return pd.Series(dtype=float)
        known = result.records[result.records["clean_ok"].astype(bool)].set_index("sample_id")
        return (known["valid"].fillna(False) if attack.seeks_minimum else known["success"]).astype(bool)

    def samples(self, model: StudiedModel, goal: GoalName, attack: SuAttack) -> list[str]:
        """Return the sample ids of a run, in the order of the dataset."""
        result = self.results.get((model.name, goal, attack.name))
        return [] if result is None else [str(sample) for sample in result.records["sample_id"]]

    def distances(self, model: StudiedModel, goal: GoalName, attack_name: str) -> pd.Series:
        """Return the distance of each success by sample id, for correctly classified images."""
        result = self.results.get((model.name, goal, attack_name))
        if result is None:
            return pd.Series(dtype=float)
        records = result.records
        won = records["clean_ok"].astype(bool) & records["valid"].fillna(False).astype(bool)
        return records[won].set_index("sample_id")["distance"].astype(float)

    def pixels_of(self, model: StudiedModel) -> int:
        """Return the number of pixels that a model's L2 distances are divided by."""
        return self.pixels.get(model.name, SMALL)

    def attack_of(self, metric: Metric) -> str:
        """Name the attack whose distances make a metric; CLEVER has none."""
        least = f"C&W κ={self.settings.kappas[0]}"
        return {LINF: SMALLEST, LTWO: least, RMSD: least}.get(metric, "")

    @property
    def sizes_differ(self) -> bool:
        """Whether the models take images of different sizes."""
        return len({self.pixels_of(model) for model in self.models}) > 1

    def same_size(self, one: StudiedModel, two: StudiedModel) -> bool:
        """Whether two models take images of one size, so that transfer neither crops nor adds a border."""
        return self.pixels_of(one) == self.pixels_of(two)

    @property
    def distortions(self) -> tuple[Metric, ...]:
        """The metrics that verdicts use: those that the size of a model's input does not change."""
        return (LINF, RMSD) if self.sizes_differ else (LINF, LTWO)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics; CLEVER is an estimate, so no verdict uses it."""
        return (LINF, LTWO, RMSD, CLEVER) if self.sizes_differ else (LINF, LTWO, CLEVER)

    @cached_property
    def common(self) -> frozenset[str]:
        """The images that every model classifies correctly (327 of 1,000 in the paper)."""
        return frozenset.intersection(*(self._correct(model) for model in self.models))

    def _correct(self, model: StudiedModel) -> frozenset[str]:
        records = self._longest(model)
        return frozenset(records[records["clean_ok"].astype(bool)]["sample_id"])

    def _longest(self, model: StudiedModel) -> pd.DataFrame:
        """Return the records of a model's run on the most images."""
        return max((result.records for (name, *_), result in self.results.items() if name == model.name), key=len)

    def values(self, model: StudiedModel, metric: Metric, goal: GoalName | None = None) -> pd.Series:
        """Return a metric per image, by sample id."""
        goal = goal or self.goal
        if metric is not CLEVER:
            pixels = self.pixels_of(model)
            unit = {LTWO: pixels, RMSD: math.sqrt(3 * pixels)}.get(metric, 1)
            return self.distances(model, goal, self.attack_of(metric)) / unit
        found = self.clever.get(model.name)
        if found is None or "estimate" not in found or goal == "untargeted":
            return pd.Series(dtype=float)
        return found[found["aim"] == goal].set_index("sample_id")["estimate"].astype(float)

    @cached_property
    def robustness(self) -> pd.DataFrame:
        """One row per model and metric: mean, median, bootstrap interval, number of images, facts of the model."""
        return self._robustness(among=None)

    @cached_property
    def robustness_on_common(self) -> pd.DataFrame:
        """The same on the images that every model classifies correctly."""
        return self._robustness(self.common)

    def _robustness(self, among: frozenset[str] | None) -> pd.DataFrame:
        rows = []
        for metric in self.metrics:
            for model in self.models:
                values = self.values(model, metric)
                values = values if among is None else values[values.index.isin(among)]
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

    def models_by(self, metric: Metric, on_common: bool = False) -> pd.DataFrame:
        """Return the rows of one metric, one per model."""
        whole = self.robustness_on_common if on_common else self.robustness
        return whole[whole["metric"] == metric.key].reset_index(drop=True) if len(whole) else whole

    def scatter(self, metric: Metric, on_common: bool = False) -> Scatter:
        """Return the models by accuracy and one metric, with the fitted laws."""
        return Scatter.of(self.models_by(metric, on_common), metric.unit)


def bootstrap(values: np.ndarray, confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean; NaN marks unknown values."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    picks = np.random.default_rng(seed).integers(len(known), size=(RESAMPLES, len(known)))
    low, high = np.quantile(known[picks].mean(1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
