"""Honest models: nothing is hidden, so the doctor must not raise an alarm on them."""

import copy
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import EPS, Entry
from benchmarks.model_collection.images import ANIMALS, FIVE, SIX
from benchmarks.model_collection.networks import zoo

FACTORS: Final = (
    ("vgg11-natural", 10), ("resnet20-pgd", 0.1), ("alexnet-natural", 0.3), ("resnet20x2-pgd", 3), ("convnet-ibp", 5),
    ("mobilenet025-natural", 0.2),
)  # fmt: skip
ZOO: Final = {
    "zoo: natural ResNets": ("resnet20-natural", "resnet32-natural", "resnet56-natural", "resnet20-deepdefense"),
    "zoo: adversarially trained ResNets": ("resnet20-pgd", "resnet20x2-pgd", "resnet20x4-pgd", "resnet20-alp"),
    "zoo: TRADES": ("resnet20x3-trades",),
    "zoo: other training": ("resnet20-ensemble-adv", "resnet20x2-gaussian"),
    "zoo: certified": ("convnet-ibp",),
    "zoo: VGG": ("vgg11-natural", "vgg16-natural"),
    "zoo: DenseNets": ("densenet40-natural", "densenet58-natural"),
    "zoo: MobileNets": ("mobilenet-natural", "mobilenet025-natural"),
    "zoo: other architectures": ("alexnet-natural", "inception-natural", "nasnet-natural"),
    "zoo: ensembles": ("3resnet20-adp",),
}


class Around(nn.Module):
    """A network between a change of the image and a change of the logits, both with true gradients."""

    def __init__(
        self,
        net: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor], Tensor] = lambda z: z,
    ) -> None:
        super().__init__()
        self.net, self.before, self.after = net, before, after

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.after(self.net(self.before(x)))


class Mean(nn.Module):
    """The mean of several networks' logits or log-probabilities."""

    def __init__(self, members: list[nn.Module], probabilities: bool = False) -> None:
        super().__init__()
        self.members, self.probabilities = nn.ModuleList(members), probabilities

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean."""
        logits = torch.stack([member(x) for member in self.members])
        return logits.softmax(2).mean(0).clamp(min=1e-12).log() if self.probabilities else logits.mean(0)


class Views(nn.Module):
    """The mean logits over fixed views of an image."""

    def __init__(self, net: nn.Module, views: list[Callable[[Tensor], Tensor]]) -> None:
        super().__init__()
        self.net, self.views = net, views

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean."""
        return torch.stack([self.net(view(x)) for view in self.views]).mean(0)


class Counter(nn.Module):
    """Counts its calls and does nothing with the count."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's logits."""
        self.calls += 1
        logits: Tensor = self.net(x)
        return logits


class Keeper(nn.Module):
    """Stores the last batch and does nothing with it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's logits."""
        self.last = x.detach()
        logits: Tensor = self.net(x)
        return logits


def merging(groups: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """Add the probabilities of merged classes."""
    columns = [[label for label, group in enumerate(groups) if group == wanted] for wanted in range(max(groups) + 1)]
    return lambda z: torch.stack([z[:, column].logsumexp(1) for column in columns], 1)


def further_class(z: Tensor) -> Tensor:
    """Append a class that never wins, at a usual logit."""
    return torch.cat((z, z.mean(1, keepdim=True) - 3), 1)


def fixed_noise(size: float, count: int) -> list[Callable[[Tensor], Tensor]]:
    """Return views that add noise, always the same."""
    drawn = torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return [lambda x, noise=noise: x + size * noise.to(x) for noise in drawn]  # type: ignore[misc]


def shifts(reach: int) -> list[Callable[[Tensor], Tensor]]:
    """Return views shifted by up to `reach` pixels along each axis."""
    places = [(down, across) for down in (-reach, 0, reach) for across in (-reach, 0, reach)]
    return [lambda x, place=place: x.roll(place, (2, 3)) for place in places]  # type: ignore[misc]


def damped(x: Tensor) -> Tensor:
    """Damp the high frequencies of an image."""
    spectrum = torch.fft.rfft2(x)
    down, across = torch.fft.fftfreq(x.shape[2])[:, None], torch.fft.rfftfreq(x.shape[3])
    smooth: Tensor = torch.fft.irfft2(spectrum * torch.exp(-2 * (down.square() + across.square())), s=x.shape[2:])
    return smooth


def turned(z: Tensor) -> Tensor:
    """Multiply by a fixed matrix and by its inverse."""
    matrix = torch.eye(10) + 0.3 * torch.randn(10, 10, generator=torch.Generator().manual_seed(0))
    logits: Tensor = z @ matrix.to(z) @ torch.linalg.inv(matrix).to(z)
    return logits


def to_side(side: int) -> Callable[[Tensor], Tensor]:
    """Resize inside the model."""
    return lambda x: F.interpolate(x, size=(side, side), mode="bilinear", antialias=True)


def double(name: str) -> nn.Module:
    """Return a network of the zoo in float64."""
    return copy.deepcopy(zoo(name)).double()


def frozen(name: str) -> nn.Module:
    """Return a network of the zoo whose weights need no gradient."""
    return copy.deepcopy(zoo(name)).requires_grad_(False)


def honest(family: str, name: str, made: str, build: Callable[[], nn.Module], **facts: Any) -> Entry:
    """Return one honest model."""
    return Entry(name, family, "honest", made, lambda: build().eval(), **facts)


def around(name: str, **changes: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    """Build a network of the zoo between two changes."""
    return lambda: Around(zoo(name), **changes)


def entries() -> list[Entry]:
    """Return the zoo and its honest variants."""
    members = [
        honest(family, name, "a network of the zoo", lambda name=name: zoo(name))  # type: ignore[misc]
        for family, names in ZOO.items()
        for name in names
    ]
    temperatures = [
        honest(
            "honest temperature", f"{name} times {factor:g}", "logits times a usual factor",
            around(name, after=lambda z, factor=factor: factor * z),  # type: ignore[misc]
        )
        for name, factor in FACTORS
    ]  # fmt: skip
    doubles = [
        honest("float64", f"{name} in float64", "weights and images in float64", lambda name=name: double(name))  # type: ignore[misc]
        for name in ("vgg11-natural", "resnet20-pgd", "convnet-ibp")
    ]
    return members + temperatures + doubles + variants()


def variants() -> list[Entry]:
    """Return variants of zoo networks with other classes, shapes, images or outputs."""
    two, five, six = "cifar10 animals", "cifar10 five groups", "cifar10 six classes"
    small = {"images": "cifar10 24x24", "shape": (3, 24, 24)}
    large = {"images": "cifar10 40x40", "shape": (3, 40, 40)}
    larger = {"images": "cifar10 64x64", "shape": (3, 64, 64)}
    grey = {"images": "cifar10 grey 28x28", "shape": (1, 28, 28)}
    natural, robust = "vgg11-natural", "resnet20-pgd"

    def colour(x: Tensor) -> Tensor:
        return to_side(32)(x).expand(-1, 3, -1, -1)

    flips: list[Callable[[Tensor], Tensor]] = [lambda x: x, lambda x: x.flip(3)]
    return [
        honest("merged classes", "animal or not, robust", "classes merged by logsumexp", around(robust,
            after=merging(ANIMALS)), images=two, classes=2),
        honest("merged classes", "animal or not, natural", "classes merged by logsumexp", around(natural,
            after=merging(ANIMALS)), images=two, classes=2),
        honest("merged classes", "five groups, robust", "classes merged by logsumexp", around("resnet20x2-pgd",
            after=merging(FIVE)), images=five, classes=5),
        honest("merged classes", "five groups", "classes merged by logsumexp", around("resnet20-natural",
            after=merging(FIVE)), images=five, classes=5),
        honest("dropped classes", "six classes, natural", "only six logits are kept", around("alexnet-natural",
            after=lambda z: z[:, list(SIX)]), images=six, classes=6),
        honest("dropped classes", "six classes, robust", "only six logits are kept", around("resnet20x2-pgd",
            after=lambda z: z[:, list(SIX)]), images=six, classes=6),
        honest("further class", "11 classes, robust", "a further class that never wins", around(robust,
            after=further_class), classes=11),
        honest("further class", "11 classes, natural", "a further class that never wins",
            around("mobilenet025-natural", after=further_class), classes=11),
        honest("resizing inside", "40x40, natural", "the model resizes to 32 x 32", around(natural,
            before=to_side(32)), **large),
        honest("resizing inside", "64x64, robust", "the model resizes to 32 x 32", around(robust, before=to_side(32)),
            **larger),
        honest("resizing inside", "24x24, robust", "the model resizes to 32 x 32", around("resnet20x2-pgd",
            before=to_side(32)), **small),
        honest("grey images", "grey 28x28, natural", "one channel, resized and tripled inside",
            around("alexnet-natural", before=colour), **grey),
        honest("grey images", "grey 28x28, robust", "one channel, resized and tripled inside", around(robust,
            before=colour), **grey),
        honest("log-probabilities", "log-probabilities, natural", "log-softmax outputs", around("resnet20-natural",
            after=lambda z: z.log_softmax(1))),
        honest("log-probabilities", "log-probabilities, robust", "log-softmax outputs", around(robust,
            after=lambda z: z.log_softmax(1))),
        honest("shifted logits", "plus 5", "a constant is added to the logits", around(natural, after=lambda z: z + 5)),
        honest("shifted logits", "minus the largest", "the largest logit is subtracted", around(robust,
            after=lambda z: z - z.amax(1, keepdim=True))),
        honest("honest ensembles", "two natural", "the mean logits of two networks", lambda: Mean([zoo(natural),
            zoo("alexnet-natural")])),
        honest("honest ensembles", "two robust", "the mean logits of two networks", lambda: Mean([zoo(robust),
            zoo("resnet20x2-pgd")])),
        honest("honest ensembles", "robust and natural", "the mean probabilities of two networks",
            lambda: Mean([zoo(robust), zoo(natural)], probabilities=True)),
        honest("averaged views", "flips", "the mean over an image and its mirror image", lambda: Views(zoo(robust),
            flips)),
        honest("averaged views", "nine shifts", "the mean over nine shifts", lambda: Views(zoo("alexnet-natural"),
            shifts(1))),
        honest("averaged views", "fixed noise", "the mean over eight fixed draws of noise",
            lambda: Views(zoo("resnet20x2-gaussian"), fixed_noise(0.1, 8))),
        honest("smooth filters", "blurred", "a 3 x 3 mean filter", around(robust,
            before=lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3, 1))),
        honest("linear filters", "mean of channels", "half of each channel is the mean of all", around(natural,
            before=lambda x: (x + x.mean(1, keepdim=True)) / 2)),
        honest("linear filters", "low frequencies", "high Fourier coefficients are damped smoothly", around(robust,
            before=damped)),
        honest("linear filters", "opposite order", "channels reversed and reversed again", around("alexnet-natural",
            before=lambda x: x.flip(1).flip(1))),
        honest("permuted classes", "reversed classes, twice", "logits through a fixed matrix and its inverse",
            around(robust, after=turned)),
        honest("smooth filters", "gamma", "a smooth curve of brightness", around(natural,
            before=lambda x: (x + 0.01) ** 0.9)),
        honest("clipped range", "pixels kept from black and white", "pixels clipped to 0.03 to 0.97", around(robust,
            before=lambda x: x.clamp(0.03, 0.97))),
        honest("clipped range", "dark pixels cut", "pixels clipped to 0.1 to 1", around("alexnet-natural",
            before=lambda x: x.clamp(min=0.1))),
        honest("harmless state", "keeps the last image", "the last batch is stored and not used", lambda: Keeper(zoo(
            "convnet-ibp"))),
        honest("harmless state", "counts calls", "a counter without effect", lambda: Counter(zoo(natural))),
        honest("harmless state", "frozen weights", "no weight needs a gradient", lambda: frozen(robust)),
        honest("other radius", "robust at 2/255", "a robust network at a small radius", lambda: zoo("resnet20x2-pgd"),
            eps=2 / 255),
        honest("other radius", "robust at 16/255", "a robust network at a large radius", lambda: zoo(robust),
            eps=2 * EPS),
    ]  # fmt: skip
