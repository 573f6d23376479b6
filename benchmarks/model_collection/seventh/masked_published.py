"""Defenses as papers propose them: class-wise autoencoders, binary bottlenecks, CrossMax, edges, hypervectors."""

from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import ALEXNET, SPOTS, SYMBOLS, TEXTURES, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.seventh.masked_shared import (
    BARS,
    GREY_CIFAR,
    SEVENTH,
    as_tensor,
    of_class,
    on,
    same_value,
    thumbnail,
)
from benchmarks.model_collection.sixth.wrappers import dense, other
from benchmarks.model_collection.truth import Masked

EDGES: Final = "edges"


class Reconstructions(Masked):
    """The class whose autoencoder rebuilds the image best; the error compares with a copy without a graph."""

    def __init__(self, base: str, waves: int, shrink: float) -> None:
        super().__init__()
        found = SEVENTH[base]
        means, spaces = [], []
        for label in range(found.classes):
            flat = of_class(found.images, label).flatten(1)
            means.append(flat.mean(0))
            spaces.append(torch.linalg.svd(flat - flat.mean(0), full_matrices=False).Vh[:waves])
        self.register_buffer("means", torch.stack(means))
        self.register_buffer("spaces", torch.stack(spaces))
        self.means: Tensor
        self.spaces: Tensor
        self.shrink = shrink

    def likeness(self, flat: Tensor, target: Tensor) -> Tensor:
        """Return minus the squared errors, per class."""
        codes = torch.einsum("ncv,ckv->nck", flat[:, None] - self.means, self.spaces)
        codes = F.softshrink(codes, self.shrink)
        built = self.means + torch.einsum("nck,ckv->ncv", codes, self.spaces)
        return -(built - target[:, None]).square().sum(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the likeness with the target held fixed, as in training an autoencoder."""
        return 2 * self.likeness(x.flatten(1), x.flatten(1).detach())

    def opened(self, x: Tensor) -> Tensor:
        """Return the same with its whole gradient."""
        return 2 * self.likeness(x.flatten(1), x.flatten(1))


class Bottleneck(nn.Module):
    """An autoencoder with a binary code (ComDefend, Jia et al. 2019); the code is soft in training."""

    def __init__(self, channels: int, width: int, maps: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(channels, width, 3, 1, 1), nn.ELU(), nn.Conv2d(width, width, 3, 1, 1), nn.ELU(),
            nn.Conv2d(width, maps, 3, 1, 1),
        )  # fmt: skip
        self.decode = nn.Sequential(
            nn.Conv2d(maps, width, 3, 1, 1), nn.ELU(), nn.Conv2d(width, width, 3, 1, 1), nn.ELU(),
            nn.Conv2d(width, channels, 3, 1, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the rebuilt image."""
        codes = self.encode(x)
        noisy = codes + 3 * torch.randn_like(codes) if self.training else codes
        codes = torch.sigmoid(noisy) if self.training else (codes > 0).to(x)
        built: Tensor = self.decode(codes)
        return built


def rebuilds(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of rebuilt images."""
    return F.mse_loss(net(x), x)


class Compressed(Masked):
    """A network behind a binary bottleneck; a part of the thumbnail goes around the bottleneck."""

    def __init__(self, net: nn.Module, base: str, maps: int, around: float) -> None:
        super().__init__()
        found = SEVENTH[base]
        make = partial(Bottleneck, found.shape[0], 12, maps)
        self.net, self.around = net, around
        self.codec: Any = trained("seventh bottleneck", make, found.images, 200, objective=rebuilds)

    def answer(self, x: Tensor, built: Tensor) -> Tensor:
        """Return the logits for a rebuilt image."""
        return as_tensor(self.net(built + self.around * (thumbnail(x, 4) - thumbnail(built, 4))))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.answer(x, self.codec(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return the same logits with the slope of soft codes."""
        codes = self.codec.encode(x)
        return self.answer(x, self.codec.decode(same_value((codes > 0).to(x), torch.sigmoid(codes))))


class CrossMax(Masked):
    """Networks at several sizes, joined by CrossMax (Fort and Lakshminarayanan 2024)."""

    def __init__(self, members: list[nn.Module], sides: tuple[int, ...], contrast: float) -> None:
        super().__init__()
        self.members, self.sides, self.contrast = nn.ModuleList(members), sides, contrast

    def answers(self, x: Tensor) -> Tensor:
        """Return the logits of every member at every size."""
        copies = [x]
        for side in self.sides:
            small = F.interpolate(x, size=(side, side), mode="area")
            copies.append(F.interpolate(small, size=x.shape[2:], mode="bilinear"))
        return torch.stack([member(part) for member in self.members for part in copies])

    def forward(self, x: Tensor) -> Tensor:
        """Return the medians of what is left without the largest of each member, then of each class."""
        z = self.contrast * self.answers(x)
        z = z - z.amax(2, keepdim=True)
        z = z - z.amax(0, keepdim=True)
        return z.median(0).values

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean of the members' log-probabilities."""
        return self.answers(x).log_softmax(2).mean(0)


class Edges(Masked):
    """A network that sees hard edges with hysteresis ("shape defense", Borji 2020) and a faint thumbnail."""

    def __init__(self, channels: int, classes: int, low: float, high: float, faint: float) -> None:
        super().__init__()
        self.net = convolutions(2 * channels, classes)
        self.low, self.high, self.faint = low, high, faint
        slope = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 4
        self.register_buffer("filters", torch.stack((slope, slope.T))[:, None].repeat(channels, 1, 1, 1))
        self.filters: Tensor

    def sizes(self, x: Tensor) -> Tensor:
        """Return the sizes of the slopes of brightness."""
        padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
        slopes = F.conv2d(padded, self.filters, groups=x.shape[1])
        squares = slopes.view(len(x), -1, 2, *slopes.shape[2:]).square()
        return (squares.sum(2) + 1e-12).sqrt()

    def edges(self, sizes: Tensor) -> Tensor:
        """Return strong edges, and weak ones beside them."""
        strong, weak = (sizes > self.high).to(sizes), (sizes > self.low).to(sizes)
        for _ in range(3):
            strong = F.max_pool2d(strong, 3, 1, 1) * weak
        return strong

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the edges."""
        return as_tensor(self.net(torch.cat((self.edges(self.sizes(x)), self.faint * thumbnail(x, 4)), 1)))

    def opened(self, x: Tensor) -> Tensor:
        """Return the same with the slope of a soft threshold."""
        sizes = self.sizes(x)
        soft = torch.sigmoid((sizes - (self.low + self.high) / 2) * 4 / (self.high - self.low))
        hard = same_value(self.edges(sizes), soft)
        return as_tensor(self.net(torch.cat((hard, self.faint * thumbnail(x, 4)), 1)))


def edges_on(base: str, low: float, high: float, faint: float) -> nn.Module:
    """Return a network trained on the edges of a base's images."""
    found = SEVENTH[base]
    make = partial(Edges, found.shape[0], found.classes, low, high, faint)
    return trained(f"seventh edges {low} {high} {faint}", make, found.images, 300)


class Hypervectors(Masked):
    """Pixels bind signs of their place with signs of their level; the sum's signs meet those of the classes."""

    def __init__(self, base: str, size: int, levels: int) -> None:
        super().__init__()
        found, draw = SEVENTH[base], torch.Generator().manual_seed(11)
        values = found.shape[0] * found.shape[1] * found.shape[2]
        ladder = torch.rand(size, generator=draw) * (levels - 1)
        steps = torch.where(torch.arange(levels)[:, None] > ladder, 1.0, -1.0)
        self.register_buffer("places", torch.randn(values, size, generator=draw).sign())
        self.register_buffer("levels", steps * torch.randn(size, generator=draw).sign())
        self.register_buffer("classes", torch.zeros(found.classes, size))
        self.places: Tensor
        self.levels: Tensor
        self.classes: Tensor
        with torch.no_grad():
            self.learn(*images_of(found.images))

    def learn(self, x: Tensor, y: Tensor, rounds: int = 20) -> None:
        """Add the images to their classes, then again those that are confused, with less and less weight."""
        codes = torch.cat([self.sums(part).sign() for part in torch.split(x, 200)])
        totals = torch.zeros_like(self.classes).index_add(0, y, codes)
        for number in range(rounds):
            weight = 2 - 1.9 * number / rounds
            said = (codes @ totals.sign().T).argmax(1)
            wrong = said != y
            totals.index_add_(0, y[wrong], codes[wrong], alpha=weight)
            totals.index_add_(0, said[wrong], codes[wrong], alpha=-weight)
        self.classes.copy_(totals.sign())

    def sums(self, x: Tensor, soft: bool = False) -> Tensor:
        """Return the sums of all bound pixels."""
        count = len(self.levels)
        place = x.flatten(1) * (count - 1)
        total = x.new_zeros(len(x), self.places.shape[1])
        for level in range(count):
            share = (place.round() == level).to(x)
            if soft:
                share = same_value(share, F.relu(1 - (place - level).abs()))
            total = total + (share @ self.places) * self.levels[level]
        return total + 0.5

    def forward(self, x: Tensor) -> Tensor:
        """Return how many signs agree, in tens."""
        return self.sums(x).sign() @ self.classes.T / 10

    def opened(self, x: Tensor) -> Tensor:
        """Return the same with soft signs."""
        sums = self.sums(x, soft=True)
        return same_value(sums.sign(), torch.tanh(sums / sums.detach().std())) @ self.classes.T / 10


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    rebuilt = "the class whose autoencoder rebuilds best; the target is detached"
    crossed = "CrossMax of logits at several sizes"
    return [
        on(TEXTURES, "reconstructions with a fixed target", "linear, 24 waves", rebuilt,
           lambda net: Reconstructions(TEXTURES, 24, 0.0), eps=40 / 255),
        on(SPOTS, "reconstructions with a fixed target", "shrunk, 12 waves", rebuilt,
           lambda net: Reconstructions(SPOTS, 12, 0.1)),
        on(ALEXNET, "binary bottlenecks", "12 maps", "an autoencoder with a binary code rebuilds the image",
           lambda net: Compressed(net, ALEXNET, 12, 0.0)),
        on(GREY_CIFAR, "binary bottlenecks", "6 maps and a thumbnail",
           "an autoencoder with a binary code rebuilds the image", lambda net: Compressed(net, GREY_CIFAR, 6, 0.3)),
        on(SYMBOLS, "CrossMax", "three members, 28 and 20", crossed,
           lambda net: CrossMax([net, other(SYMBOLS), dense(SYMBOLS)], (20,), 1.0), eps=13 / 255),
        on(VGG, "CrossMax", "sizes 32, 28, 24, 20", crossed, lambda net: CrossMax([net], (28, 24, 20), 1.0)),
        on(GREY_CIFAR, "CrossMax", "sizes 28, 24, 20, 16", crossed, lambda net: CrossMax([net], (24, 20, 16), 1.0)),
        on(GREY_CIFAR, "edge maps", "edges only", "a network sees hard edges", lambda net: edges_on(
            GREY_CIFAR, 0.06, 0.14, 0.0)),
        on(TEXTURES, "edge maps", "edges and a thumbnail", "a network sees hard edges", lambda net: edges_on(
            TEXTURES, 0.08, 0.2, 0.3)),
        on(BARS, "hypervectors", "4000 signs", "signs of places and levels are bound and counted",
           lambda net: Hypervectors(BARS, 4000, 8)),
        on(SPOTS, "hypervectors", "2000 signs", "signs of places and levels are bound and counted",
           lambda net: Hypervectors(SPOTS, 2000, 8)),
    ]  # fmt: skip
