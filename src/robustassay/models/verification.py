"""Checks that a model of the zoo is what its card says: the same bytes, and an accuracy the card can explain."""

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

LEVEL: Final = 1e-6
"""An honest card is called a liar once in a million checks; on 1,000 images five points off are still noticed."""

BATCH: Final = 50


@final
@dataclass(frozen=True)
class Verification:
    """What was found of one model; without a problem, all is as its card says."""

    name: str
    verdict: Literal["ok", "changed", "unreadable", "inconsistent"]
    promised: float
    problem: str | None = None
    right: int = 0
    images: int = 0
    chance: float | None = None  # of a count at least as odd as this one, if the card is right

    @property
    def accuracy(self) -> float | None:
        """Part of the images classified correctly, where it came to a measurement."""
        return self.right / self.images if self.images else None


def verify(
    name: str, dataset: Dataset, folder: Path = EMBEDDED, tell: Callable[[int], None] = lambda images: None
) -> Verification:
    """Hash the weights, load them, and count what the model gets right; `tell` hears of images as they are done."""
    origin = card(name, folder)
    changed = _change(origin, folder / f"{name}.safetensors")
    if changed:
        return Verification(name, "changed", origin.clean_accuracy, changed)
    try:
        right = _count_right(name, origin, dataset, folder, tell)
    except BadWeights as error:
        return Verification(name, "unreadable", origin.clean_accuracy, str(error))
    chance = p_value(right, len(dataset), origin.clean_accuracy)
    found = Verification(name, "ok", origin.clean_accuracy, None, right, len(dataset), chance)
    if chance >= LEVEL:
        return found
    problem = (
        f"Its card says {origin.clean_accuracy:.1%}, which chance alone does not turn into {right} of {len(dataset)}: "
        "measure the card again, or undo what changed the code of its architecture."
    )
    return replace(found, verdict="inconsistent", problem=problem)


def p_value(right: int, images: int, promised: float) -> float:
    """Return the p-value of so many right answers under the card's accuracy, by the exact two-sided binomial test."""
    from scipy.stats import binomtest

    return float(binomtest(right, images, promised).pvalue)


def _change(origin: ModelCard, path: Path) -> str | None:
    """Say in what a weights file is not the one that the card was written for."""
    if not path.is_file():
        return f"There is no {path.name} beside the card, and nothing but safetensors is loaded: fetch the file again."
    found = sha256_of(path)
    if found == origin.sha256:
        return None
    return (
        f"The file's sha256 is {found[:12]}... and the card's {origin.sha256[:12]}...: "
        "reinstall assay or fetch the model again."
    )


def _count_right(name: str, origin: ModelCard, dataset: Dataset, folder: Path, tell: Callable[[int], None]) -> int:
    if origin.classes != len(dataset.classes):
        raise BadWeights(f"{name} knows {origin.classes} classes and {dataset.name} has {len(dataset.classes)}.")
    network, right = load(name, folder=folder), 0
    # A network that draws random numbers shall get the same verdict each time.
    with torch.no_grad(), seeded("assay/zoo/verify", torch.device("cpu")):
        for start in range(0, len(dataset), BATCH):
            rows = slice(start, start + BATCH)
            labels = dataset.labels[rows]
            right += int((network(dataset.images(rows)).argmax(1) == labels).sum())
            tell(len(labels))
    return right
