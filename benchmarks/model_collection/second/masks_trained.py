"""Networks trained with hard decisions inside: binary, spiking, ranked and voting ones, trees, hashes, cut graphs."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.second import hard_layers as layers
from benchmarks.model_collection.second import hard_networks as hard
from benchmarks.model_collection.truth import Masked

Make = Callable[[int, int], nn.Module]
"""From channels and classes to a network."""


class Deployed(Masked):
    """A network with hard layers; the attacker differentiates their soft stand-ins."""

    def __init__(self, net: nn.Module, draws: int) -> None:
        super().__init__()
        self.net, self.draws = net, draws

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits with useful gradients."""
        opening = [part for part in self.net.modules() if isinstance(part, layers.Opening)]
        for layer in opening:
            layer.opened = True
        logits: Tensor = self.net(x)
        for layer in opening:
            layer.opened = False
        return logits


SOURCES: Final[dict[str, tuple[int, tuple[int, int, int], float]]] = {
    "symbols 10": (10, (1, 28, 28), 10 / 255),
    "symbols 11": (11, (1, 28, 28), 10 / 255),
    "symbols 16": (16, (1, 28, 28), 10 / 255),
    "textures": (4, (3, 16, 16), 16 / 255),
    "pairs": (100, (1, 20, 32), 14 / 255),
    "spots": (20, (5, 16, 16), 12 / 255),
    "waves": (2, (1, 12, 48), 24 / 255),
    "cifar10": (10, (3, 32, 32), 8 / 255),
    "cifar10 grey 28x28": (10, (1, 28, 28), 8 / 255),
}


def of_source(images: str, **changes: Any) -> dict[str, Any]:
    """Return what an entry says of its images."""
    classes, shape, eps = SOURCES[images]
    return {"images": images, "classes": classes, "shape": shape, "eps": eps, **changes}


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        model(family, name, made, make, images, draws)
        for family, name, made, make, sources, draws in TABLE
        for images in sources
    ]


def model(family: str, name: str, made: str, make: Make, images: str, draws: int) -> Entry:
    """Return one trained model."""
    facts = of_source(images, asked="together" if draws == 1 else "majority")
    build = partial(make, facts["shape"][0], facts["classes"])
    return Entry(
        f"{name}, {images}", family, "masked", made,
        lambda: Deployed(trained(f"fresh {name}", build, images, STEPS), draws).eval(), **facts,
    )  # fmt: skip


STEPS: Final = 150
TABLE: Final[list[tuple[str, str, str, Make, list[str], int]]] = [
    ("binary activations", "signs", "every activation is a sign", partial(convolutions, activation=layers.sign),
        ["spots", "textures"], 1),
    ("saturated activations", "steep tanh", "every activation is a saturated tanh", partial(convolutions,
        activation=layers.saturated), ["spots"], 1),
    ("spiking neurons", "spike counts", "activations are counts of spikes", partial(convolutions,
        activation=layers.spiking), ["textures", "spots"], 1),
    ("stochastic neurons", "drawn activations", "activations are drawn as 0 or 1", partial(convolutions,
        activation=layers.bernoulli), ["textures"], 8),
    ("decision trees", "hard trees", "trees with hard splits over features", hard.Trees, ["textures", "spots"], 1),
    ("counted directions", "histograms", "directions of edges are counted in cells", hard.Orientations, ["textures",
        "pairs"], 1),
    ("comparisons of pixels", "census", "pixels are compared with their neighbours", hard.Comparisons, ["textures",
        "waves"], 1),
    ("places of maxima", "places", "only the places of the strongest responses count", hard.Places, ["spots"], 1),
    ("winner hashes", "groups of 4", "of each group of features only the winner's index counts", hard.Groups,
        ["pairs", "waves"], 1),
    ("local votes", "votes of places", "each place has one vote", lambda channels, classes: hard.LocalVotes(channels,
        classes, layers.winner(), True), ["textures", "waves"], 1),
    ("median of places", "median", "the median over places decides", lambda channels, classes: hard.LocalVotes(channels,
        classes, layers.Middle(), False), ["textures", "waves"], 1),
    ("unrecorded fixed point", "fixed point", "a fixed point is found without recording", hard.Equilibrium,
        ["textures", "spots"], 1),
    ("hard attention", "one patch each", "each patch looks at one other patch", lambda channels,
        classes: hard.HardAttention(channels, 16, 4, classes), ["textures", "spots"], 1),
    ("ranked features", "ranks", "only the ranks of the features count", hard.Ranked, ["spots"], 1),
]  # fmt: skip
