"""Honest small networks of further designs and trainings, with nothing hidden."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from torch import nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import Objective, convolutions, perceptron, plain, trained
from benchmarks.model_collection.sixth import honest_designs as designs
from benchmarks.model_collection.sixth import honest_parts as parts
from benchmarks.model_collection.sixth import honest_trainings as trainings

Make = Callable[[], nn.Module]
STEPS: Final = 200
FACTS: Final[dict[str, tuple[int, tuple[int, int, int]]]] = {
    "cifar10": (10, (3, 32, 32)),
    "cifar10 24x24": (10, (3, 24, 24)),
    "cifar10 grey 28x28": (10, (1, 28, 28)),
    "cifar10 five groups": (5, (3, 32, 32)),
    "cifar10 six classes": (6, (3, 32, 32)),
    "symbols 10": (10, (1, 28, 28)),
    "symbols 11": (11, (1, 28, 28)),
    "symbols 16": (16, (1, 28, 28)),
    "textures": (4, (3, 16, 16)),
    "pairs": (100, (1, 20, 32)),
    "spots": (20, (5, 16, 16)),
    "waves": (2, (1, 12, 48)),
    "bars": (3, (1, 6, 6)),
}


def one(
    family: str, images: str, eps: float, make: Make, objective: Objective = plain, against: float = 0.0,
    steps: int = STEPS,
) -> Entry:  # fmt: skip
    """Return one small trained network; radii are in 255ths, and `against` is that of adversarial training."""
    classes, shape = FACTS[images]
    name = f"{family}, {images}{', robust' if against else ''}"
    made = f"trained for {steps} steps on {images}" + (f" against {against:g}/255" if against else "")
    build = partial(trained, f"sixth honest {name}", make, images, steps, against / 255, objective)
    return honest(name, family, made, build, images=images, classes=classes, shape=shape, eps=eps / 255)


def honest(name: str, family: str, made: str, build: Make, **facts: Any) -> Entry:
    """Return one honest model."""
    return Entry(name, family, "honest", made, build, **facts)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    kernels = honest(
        "kernel regression, symbols 11",
        "kernel regression",
        "solved at once on 800 images",
        lambda: trainings.Kernels("symbols 11", 11).eval(),
        images="symbols 11",
        classes=11,
        shape=(1, 28, 28),
        eps=24 / 255,
    )
    thousand = replace(one("a thousand outputs", "symbols 10", 8, lambda: convolutions(1, 1000)), classes=1000)
    return [*(one(*row) for row in DESIGNS), *(one(*row) for row in TRAININGS), kernels, thousand]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("class tokens", "symbols 11", 6, lambda: parts.ClassToken(1, 7, 16, 11), plain, 0, 400),
    ("U-shaped networks", "textures", 30, lambda: parts.UShape(3, 4), plain, 14),
    ("squeezed filters", "symbols 11", 20, lambda: nn.Sequential(parts.filters(1, 16, 2), parts.Fire(16, 6, 24),
        nn.MaxPool2d(2), parts.Fire(24, 8, 32), parts.read_out(11, 32))),
    ("graphs of patches", "spots", 2, lambda: parts.PatchGraph(5, 4, 4, 20), plain, 0, 500),
    ("free sampling", "textures", 20, lambda: parts.FreeSampling(3, 4)),
    ("four turns", "cifar10 six classes", 4, lambda: nn.Sequential(parts.FourTurns(3, 12, 2), parts.FourTurns(12, 20,
        2), parts.read_out(6, 20)), plain, 4, 150),
    ("turned attention", "waves", 24, lambda: parts.TurnedAttention(12, 48, 2), plain, 12),
    ("filters of one place", "symbols 16", 24, lambda: nn.Sequential(designs.Unshared(1, 28, 6), nn.ReLU(),
        nn.Linear(294, 16)), plain, 14),
    ("classes in two levels", "pairs", 14, lambda: designs.TwoLevels(1, 10, 10), plain, 14, 250),
    ("one threshold after another", "bars", 12, lambda: designs.Continued(perceptron(36, 2, nn.SiLU, 32))),
    ("evidence", "spots", 10, lambda: designs.Evidence(convolutions(5, 20)), trainings.evidence),
    ("several inputs", "symbols 16", 16, lambda: designs.SeveralInputs(1, 16)),
    ("pairs of image and class", "textures", 12, lambda: designs.ScoredPairs(3, 4)),
    ("cosine coefficients", "cifar10 24x24", 4, lambda: designs.CosineBlocks(3, 10), plain, 4),
    ("images on circles", "cifar10 five groups", 4, lambda: designs.PolarView(convolutions(3, 5)), plain, 4),
]  # fmt: skip
TRAININGS: Final[list[tuple[Any, ...]]] = [
    ("distilled students", "cifar10", 1.5, lambda: convolutions(3, 10, width=12), trainings.distilled, 0, 120),
    ("zero training loss", "cifar10 grey 28x28", 3.5, lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784),
        nn.Linear(784, 192), nn.BatchNorm1d(192), nn.ReLU(), nn.Linear(192, 10)), plain, 0, 1000),
    ("ternary weights", "symbols 11", 16, lambda: nn.Sequential(nn.Flatten(), trainings.Ternary(784, 128),
        nn.BatchNorm1d(128), nn.ReLU(), trainings.Ternary(128, 11))),
    ("one score for two classes", "waves", 12, lambda: trainings.OneScore(convolutions(1, 1, nn.GELU)), plain, 12),
    ("short changes in training", "textures", 30, lambda: convolutions(3, 4, nn.ELU), partial(trainings.short_changes,
        length=1.0)),
]  # fmt: skip
