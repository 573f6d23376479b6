"""Honest small networks of yet other designs, answers and trainings, with nothing hidden."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch import nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import Objective, convolutions, perceptron, plain, trained
from benchmarks.model_collection.seventh import honest_blocks as blocks
from benchmarks.model_collection.seventh import honest_heads as heads
from benchmarks.model_collection.seventh import honest_trainings as trainings
from benchmarks.model_collection.sixth import honest_layers

Make = Callable[[], nn.Module]
FACTS: Final = {
    **honest_layers.FACTS,
    "cifar10 grey 32x32x3": (10, (3, 32, 32)),
    "cifar10 animals": (2, (3, 32, 32)),
}


def one(
    family: str, images: str, eps: float, make: Make, objective: Objective = plain, against: float = 0.0,
    steps: int = 200, **facts: Any,
) -> Entry:  # fmt: skip
    """Return one small trained network; radii are in 255ths, and `against` is that of adversarial training."""
    classes, shape = FACTS[images]
    name = f"{family}, {images}{', robust' if against else ''}"
    made = f"trained for {steps} steps on {images}" + (f" against {against:g}/255" if against else "")
    build = partial(trained, f"seventh honest {name}", make, images, steps, against / 255, objective)
    known: dict[str, Any] = {"images": images, "classes": classes, "shape": shape, **facts}
    return Entry(name, family, "honest", made, build, eps=eps / 255, **known)


def features(channels: int, values: int, activation: Make = nn.ReLU) -> nn.Module:
    """Three convolutions and a dense layer that ends in features."""
    return convolutions(channels, values, activation)


def next_network(channels: int, classes: int, width: int = 16) -> nn.Module:
    """Patches, two blocks of large depthwise filters, and a head."""
    parts = (blocks.LargeDepthwise(width), blocks.LargeDepthwise(width), nn.GroupNorm(1, width))
    return nn.Sequential(nn.Conv2d(channels, width, 2, 2), *parts, blocks.read_out(classes, width))


def self_normalising(values: int, classes: int, depth: int = 6, width: int = 64) -> nn.Module:
    """Dense layers that keep the spread of their values by their activation alone (Klambauer et al. 2017)."""
    layers: list[nn.Module] = [nn.Flatten(), nn.BatchNorm1d(values, affine=False)]
    for number in range(depth):
        layer = nn.Linear(width if number else values, width)
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        layers += [layer, nn.SELU(), nn.AlphaDropout(0.05)]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def strongest(channels: int, classes: int, width: int = 24) -> nn.Module:
    """Two layers of filters, of whose responses the eight largest of each channel count."""
    first = (nn.Conv2d(channels, width, 5, 1, 2), nn.BatchNorm2d(width), nn.ReLU())
    second = (nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU())
    return nn.Sequential(*first, *second, blocks.LargestPlaces(8), nn.Linear(2 * width, classes))


def own_filters(channels: int, classes: int, width: int = 16) -> nn.Module:
    """Usual filters, filters made by the places, and a head."""
    made = (blocks.FiltersOfPlaces(width), nn.BatchNorm2d(width), nn.ReLU())
    return nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1), nn.ReLU(), *made, blocks.read_out(classes, width))


def seen_colours(classes: int) -> nn.Module:
    """Convolutions over colours as the eye sees them."""
    return nn.Sequential(heads.Change(heads.as_seen), convolutions(3, classes))


def edges(side: int, cell: int, classes: int) -> nn.Module:
    """Counts of edge directions and a small dense network."""
    return nn.Sequential(heads.EdgeDirections(cell), perceptron(8 * (side // cell) ** 2, classes, nn.ReLU, 64))


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    noisy = one(
        "dropout left on", "symbols 11", 20, lambda: nn.Sequential(*with_dropout(11)), plain, 14, asked="majority"
    )
    return [*(one(*row) for row in (*DESIGNS, *ANSWERS, *TRAININGS)), noisy]


def with_dropout(classes: int) -> list[nn.Module]:
    """Dense layers between which a few values are always dropped."""
    parts = [nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), trainings.LeftOn(0.02), nn.Linear(128, 64), nn.ReLU()]
    return [*parts, trainings.LeftOn(0.02), nn.Linear(64, classes)]


DESIGNS: Final[list[tuple[Any, ...]]] = [
    ("large depthwise filters", "symbols 16", 5, lambda: next_network(1, 16)),
    ("shifted windows", "textures", 8, lambda: blocks.Windows(3, 2, 4), plain, 0, 300),
    ("self-normalising layers", "cifar10 grey 28x28", 3, lambda: self_normalising(784, 10), plain, 3),
    ("filters made at each place", "cifar10 animals", 6, lambda: own_filters(3, 2)),
    ("largest responses", "cifar10 24x24", 2, lambda: strongest(3, 10)),
    ("unrolled sparse codes", "symbols 10", 16, lambda: blocks.SparseCode(784, 10), plain, 10),
    ("repeated filters", "textures", 13, lambda: blocks.RepeatedFilters(3, 4)),
    ("own exact backward passes", "pairs", 7.5, lambda: convolutions(1, 100, blocks.OwnBackward), plain, 0, 250),
    ("codes refined by gradients", "bars", 8, lambda: blocks.Refined(36, 3)),
    ("colours as seen", "cifar10 six classes", 4, lambda: seen_colours(6), plain, 4),
    ("counted edge directions", "cifar10 five groups", 1.7, lambda: edges(32, 4, 5), plain, 4),
    ("logarithmic spectra", "waves", 6, lambda: nn.Sequential(heads.Change(heads.log_spectrum), nn.Linear(300, 48),
        nn.ReLU(), nn.Linear(48, 2))),
    ("principal components", "symbols 16", 16, lambda: nn.Sequential(heads.Components("symbols 16", 50), perceptron(50,
        16, nn.Tanh)), plain, 12),
    ("pixels up to 255", "cifar10 grey 32x32x3", 1, lambda: nn.Sequential(heads.Change(lambda x: 255 * x),
        convolutions(3, 10, width=10))),
]  # fmt: skip
ANSWERS: Final[list[tuple[Any, ...]]] = [
    ("several softmaxes", "cifar10", 1, lambda: heads.SeveralSoftmaxes(features(3, 48), 48, 10)),
    ("hyperbolic distances", "symbols 11", 20, lambda: heads.InsideBall(features(1, 8), 8, 11), plain, 12),
    ("a score for each pair", "symbols 10", 10, lambda: heads.EachPair(features(1, 32), 32, 10)),
    ("tempered by distance", "textures", 16, lambda: heads.Tempered(features(3, 24), 24, 4)),
    ("vectors of class names", "spots", 6, lambda: heads.NamedClasses(features(5, 64), 64, 20), plain, 6),
]  # fmt: skip
TRAININGS: Final[list[tuple[Any, ...]]] = [
    ("sharpness in training", "symbols 16", 6, lambda: perceptron(784, 16, nn.SiLU), trainings.sharpness),
    ("virtual adversaries", "waves", 20, lambda: convolutions(1, 2, nn.Softplus), trainings.virtual_adversary),
    ("rare classes", "pairs", 12, lambda: convolutions(1, 100, nn.LeakyReLU), trainings.rarely_seen, 0, 300),
    ("moving means of weights", "cifar10 24x24", 1.3, lambda: trainings.MovingMean(convolutions(3, 10)),
        trainings.followed),
    ("layers left out in training", "symbols 11", 11, lambda: blocks.Skipped(1, 11)),
]  # fmt: skip
