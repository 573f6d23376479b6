"""Compares a zoo model with its card: the hash of its weights and its accuracy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, final

import torch

from robustassay.data import Dataset
from robustassay.errors import BadWeights
from robustassay.models.card import ModelCard
from robustassay.models.weights import sha256_of
from robustassay.models.zoo import EMBEDDED, card, load
from robustassay.rng import seeded

SIGNIFICANCE: Final = 1e-6
"""Significance level: one false alarm per million checks; on 1,000 images a difference of five points is detected."""

BATCH: Final = 50


@final
@dataclass(frozen=True)
class Verification:
    """The result for one model; without a problem, the model agrees with its card."""

    name: str
    verdict: Literal["ok", "changed", "unreadable", "inconsistent"]
    card_accuracy: float
    problem: str | None = None
    correct: int = 0
    images: int = 0
    p_value: float | None = None  # p-value of this count under the accuracy of the card

    @property
    def accuracy(self) -> float | None:
        """The measured accuracy, if there was a measurement."""
        return self.correct / self.images if self.images else None


def verify(
    name: str, dataset: Dataset, folder: Path = EMBEDDED, on_images: Callable[[int], None] = lambda images: None
) -> Verification:
    """Compare the hash and the accuracy of a model with its card; `on_images` receives the number of images done."""
    origin = card(name, folder)
    changed = _change(origin, folder / f"{name}.safetensors")
    if changed:
        return Verification(name, "changed", origin.clean_accuracy, changed)
    try:
        correct = _count_correct(name, origin, dataset, folder, on_images)
    except BadWeights as error:
        return Verification(name, "unreadable", origin.clean_accuracy, str(error))
    p_value = binomial_p_value(correct, len(dataset), origin.clean_accuracy)
    found = Verification(name, "ok", origin.clean_accuracy, None, correct, len(dataset), p_value)
    if p_value >= SIGNIFICANCE:
        return found
    problem = (
        f"Its card says {origin.clean_accuracy:.1%}, but {correct} of {len(dataset)} are correct: "
        "measure the card again, or revert the change of its architecture."
    )
    return replace(found, verdict="inconsistent", problem=problem)


def binomial_p_value(correct: int, images: int, card_accuracy: float) -> float:
    """Return the p-value of the number of correct labels under the card's accuracy (exact two-sided binomial test)."""
    from scipy.stats import binomtest

    return float(binomtest(correct, images, card_accuracy).pvalue)


def _change(origin: ModelCard, path: Path) -> str | None:
    """Return the difference between a weights file and its card, or None."""
    if not path.is_file():
        return f"There is no {path.name} with the card: fetch the file again."
    found = sha256_of(path)
    if found == origin.sha256:
        return None
    return (
        f"The file's sha256 is {found[:12]}... and the card's {origin.sha256[:12]}...: "
        "reinstall assay or fetch the model again."
    )


def _count_correct(
    name: str, origin: ModelCard, dataset: Dataset, folder: Path, on_images: Callable[[int], None]
) -> int:
    if origin.classes != len(dataset.classes):
        raise BadWeights(f"{name} has {origin.classes} classes and {dataset.name} has {len(dataset.classes)}.")
    network, correct = load(name, folder=folder), 0
    # A random network must give the same result every time.
    with torch.no_grad(), seeded("assay/zoo/verify", torch.device("cpu")):
        for start in range(0, len(dataset), BATCH):
            rows = slice(start, start + BATCH)
            labels = dataset.labels[rows]
            correct += int((network(dataset.images(rows)).argmax(1) == labels).sum())
            on_images(len(labels))
    return correct
