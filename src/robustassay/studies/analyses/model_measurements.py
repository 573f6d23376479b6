"""What analyses of a set of models are made of: predictions, attack runs and local Lipschitz estimates, each once.

Every part is stored by what it depends on, so that the same request resumes and a larger one adds what is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay import models
from robustassay.analysis.rates import Rate, robust_accuracy
from robustassay.data import Dataset
from robustassay.evaluation import Result
from robustassay.models.card import ModelCard
from robustassay.studies.task import Key, Results
from robustassay.threat import ThreatModel

TEST: Final = "test"
MEMBERS: Final = "training images"
SHIFT, OOD, ATTACKED = "shift: ", "out of distribution: ", "attacked: "
"""Prefixes of the names of other datasets; those to be attacked are shifts, too."""

MeasurementKind = Literal["predictions", "adversarial predictions", "transfer", "run", "lipschitz"]
Numbers = npt.NDArray[np.float64]


def key(kind: MeasurementKind, model: str, data: str = TEST) -> Key:
    """Name a measurement of one model on one dataset."""
    return model, kind, data


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's logits for labelled images."""

    logits: Numbers = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether each prediction is correct."""
        right: npt.NDArray[np.bool_] = self.logits.argmax(1) == self.labels
        return right

    @property
    def true_label_probability(self) -> Numbers:
        """The probability of each image's true label."""
        from scipy.special import softmax

        chances: Numbers = softmax(self.logits, axis=1)[np.arange(len(self.labels)), self.labels]
        return chances


@final
@dataclass(frozen=True, eq=False)
class ModelMeasurements:
    """The finished measurements of a set of models."""

    models: tuple[str, ...]
    datasets: Mapping[str, Dataset] = field(repr=False)
    threat: ThreatModel
    results: Results = field(repr=False)

    def predictions(self, model: str, data: str = TEST, kind: MeasurementKind = "predictions") -> Predictions:
        """Return a model's predictions on a dataset, or on its images after an attack."""
        frame = self.results[key(kind, model, data)]
        columns = [name for name in frame if str(name).startswith("logit")]
        return Predictions(frame[columns].to_numpy(np.float64), frame["label"].to_numpy(np.int64))

    def correct(self, model: str, data: str = TEST) -> npt.NDArray[np.bool_]:
        """Say which images of a dataset a model classifies correctly; of shifts, only labels are known."""
        frame = self.results[key("predictions", model, data)]
        if "predicted" not in frame:
            return self.predictions(model, data).correct
        right: npt.NDArray[np.bool_] = (frame["predicted"] == frame["label"]).to_numpy()
        return right

    def lipschitz(self, model: str) -> pd.DataFrame:
        """Return the local Lipschitz estimates of a model, per image and stage."""
        frame: pd.DataFrame = self.results[key("lipschitz", model)]
        return frame

    def records(self, model: str) -> pd.DataFrame:
        """Return the records of the attack on a model."""
        result: Result = self.results[key("run", model)]
        return result.records

    def robust(self, model: str) -> Rate:
        """Return a model's robust accuracy."""
        return robust_accuracy(self.records(model))

    def accuracy(self, model: str) -> float:
        """Return a model's accuracy on the test images."""
        return float(self.predictions(model).correct.mean())

    def named(self, prefix: str) -> list[str]:
        """Return the datasets of one kind."""
        return [name for name in self.datasets if name.startswith(prefix)]


def card_of(model: str) -> ModelCard | None:
    """Return the card of an embedded model; None for others, and for defended ones."""
    return models.card(model) if model in models.names() else None
