"""The networks that masks are put on, each with its images and radius."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, final

from torch import nn

from benchmarks.model_collection.entry import EPS, Entry
from benchmarks.model_collection.networks import convolutions, trained, zoo


@final
@dataclass(frozen=True)
class Base:
    """A network without a mask."""

    load: Callable[[], nn.Module]
    images: str = "cifar10"
    classes: int = 10
    shape: tuple[int, int, int] = (3, 32, 32)
    eps: float = EPS


def of_zoo(name: str) -> Base:
    """Return a network of the zoo as a base."""
    return Base(lambda: zoo(name))


def of_symbols(classes: int, eps: float = 10 / 255) -> Base:
    """Return a small network for seven-segment symbols."""
    images = f"symbols {classes}"
    return Base(lambda: trained("symbols", lambda: convolutions(1, classes), images), images, classes, (1, 28, 28), eps)


VGG: Final = "vgg11-natural"
RESNET: Final = "resnet20-natural"
ALEXNET: Final = "alexnet-natural"
MOBILENET: Final = "mobilenet025-natural"
ROBUST: Final = "resnet20-pgd"
CERTIFIED: Final = "convnet-ibp"
NOISE_TRAINED: Final = "resnet20x2-gaussian"
SYMBOLS: Final = "symbols of 10 classes"
SYMBOLS_11: Final = "symbols of 11 classes"
SYMBOLS_16: Final = "symbols of 16 classes"
TEXTURES: Final = "textures"
PAIRS: Final = "pairs of digits"
SPOTS: Final = "spots"
WAVES: Final = "waves"


def of_drawn(images: str, classes: int, shape: tuple[int, int, int], eps: float) -> Base:
    """Return a small network for drawn images."""
    return Base(lambda: trained(images, lambda: convolutions(shape[0], classes), images), images, classes, shape, eps)


BASES: Final[dict[str, Base]] = {
    **{name: of_zoo(name) for name in (VGG, RESNET, ALEXNET, MOBILENET, ROBUST, CERTIFIED, NOISE_TRAINED)},
    SYMBOLS: of_symbols(10),
    SYMBOLS_11: of_symbols(11),
    SYMBOLS_16: of_symbols(16),
    TEXTURES: Base(
        lambda: trained("textures", lambda: convolutions(3, 4), "textures"), "textures", 4, (3, 16, 16), 16 / 255
    ),
    PAIRS: of_drawn("pairs", 100, (1, 20, 32), 14 / 255),
    SPOTS: of_drawn("spots", 20, (5, 16, 16), 12 / 255),
    WAVES: of_drawn("waves", 2, (1, 12, 48), 24 / 255),
}


def masked(
    family: str, mask: str, made: str, make: Callable[[nn.Module], nn.Module], bases: Iterable[str], **settings: Any
) -> list[Entry]:
    """Return one masked model per base."""
    return [_on(BASES[base], base, family, mask, made, make, settings) for base in bases]


def _on(
    base: Base,
    name: str,
    family: str,
    mask: str,
    made: str,
    make: Callable[[nn.Module], nn.Module],
    settings: dict[str, Any],
) -> Entry:
    facts = {"images": base.images, "classes": base.classes, "shape": base.shape, "eps": base.eps, **settings}
    return Entry(f"{mask}, {name}", family, "masked", made, lambda: make(base.load()).eval(), **facts)
