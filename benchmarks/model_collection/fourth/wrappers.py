"""What the masked models of the fourth part share: wrappers with an open side, and further bases."""

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import ALEXNET, BASES, VGG, Base, of_drawn
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import zoo
from benchmarks.model_collection.second.smooth_layers import Apply
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]
Score = Callable[[Tensor, Tensor], Tensor]
"""From the logits of a network and its images to the scores that are shown."""

GREY: Final = "grey images"
SMALL: Final = "images of 24 x 24"
LARGE: Final = "images of 64 x 64"
WIDER: Final = "images of 40 x 40"
ANIMALS: Final = "animals"
GROUPS: Final = "five groups"
SIX: Final = "six classes"


def shrunk(name: str, images: str, side: int) -> Base:
    """Return a network of the zoo for larger images."""
    size = Apply(lambda x: F.interpolate(x, size=(32, 32), mode="bilinear", antialias=True))
    return Base(lambda: nn.Sequential(size, zoo(name)), images, shape=(3, side, side))


FURTHER: Final[dict[str, Base]] = {
    **BASES,
    GREY: of_drawn("cifar10 grey 28x28", 10, (1, 28, 28), 8 / 255),
    SMALL: of_drawn("cifar10 24x24", 10, (3, 24, 24), 6 / 255),
    LARGE: shrunk(ALEXNET, "cifar10 64x64", 64),
    WIDER: shrunk(VGG, "cifar10 40x40", 40),
    ANIMALS: of_drawn("cifar10 animals", 2, (3, 32, 32), 8 / 255),
    GROUPS: of_drawn("cifar10 five groups", 5, (3, 32, 32), 8 / 255),
    SIX: of_drawn("cifar10 six classes", 6, (3, 32, 32), 8 / 255),
}


class Scored(Masked):
    """Shows a function of the logits and of the images."""

    def __init__(self, net: nn.Module, score: Score) -> None:
        super().__init__()
        self.net, self.score = net, score

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        return self.score(self.net(x), x)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits


class Seen(Masked):
    """A network that sees changed images; the attacker's backward pass skips the change."""

    def __init__(self, net: nn.Module, change: Change, draws: int = 1) -> None:
        super().__init__()
        self.net, self.change, self.draws = net, change, draws

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the changed images."""
        logits: Tensor = self.net(self.change(x))
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the same logits with the gradient of an unchanged image."""
        logits: Tensor = self.net(x + (self.change(x) - x).detach())
        return logits


class Within(Masked):
    """A network whose activations are changed after one layer; the attacker's backward pass skips the change."""

    def __init__(self, net: nn.Module, layer: int, change: Score, draws: int = 1) -> None:
        super().__init__()
        parts = list(net.children())
        self.first, self.last = nn.Sequential(*parts[:layer]), nn.Sequential(*parts[layer:])
        self.change, self.draws = change, draws

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.last(self.change(self.first(x), x))
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the same logits with the gradient of unchanged activations."""
        h = self.first(x)
        logits: Tensor = self.last(h + (self.change(h, x) - h).detach())
        return logits


def gaps(z: Tensor) -> Tensor:
    """Return the logits minus the mean of the two largest: only the winner's is positive."""
    return z - z.topk(2, 1).values.mean(1, keepdim=True)


def leads(z: Tensor) -> Tensor:
    """Return the winner's logit minus the next one."""
    best = z.topk(2, 1).values
    return best[:, :1] - best[:, 1:]


def pattern(shape: tuple[int, ...], seed: int, rough: int = 4) -> Tensor:
    """Return a fixed random pattern of mean size 1 that changes over about `rough` pixels."""
    draw = torch.Generator().manual_seed(seed)
    *before, rows, columns = shape
    coarse = torch.randn(1, max(1, *before), -(-rows // rough), -(-columns // rough), generator=draw)
    smooth = F.interpolate(coarse, size=(rows, columns), mode="bicubic")[0]
    return smooth / smooth.abs().mean()


def weighed(x: Tensor, seed: int, rough: int = 4) -> Tensor:
    """Return the mean product of each image with a fixed pattern, one value per row."""
    return (x * pattern(tuple(x.shape[1:]), seed, rough).to(x)).mean((1, 2, 3))[:, None]


def on(base: str, family: str, mask: str, made: str, make: Callable[[nn.Module], nn.Module], **settings: Any) -> Entry:
    """Return a masked model on a base."""
    found = FURTHER[base]
    facts = {"images": found.images, "classes": found.classes, "shape": found.shape, "eps": found.eps, **settings}
    return Entry(f"{mask}, {base}", family, "masked", made, lambda: make(found.load()).eval(), **facts)
