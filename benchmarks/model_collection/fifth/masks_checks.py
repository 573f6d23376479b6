"""Services around a network: checks with a fallback, a second look, and answers that were stored before."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import (
    ALEXNET,
    BASES,
    MOBILENET,
    PAIRS,
    RESNET,
    ROBUST,
    VGG,
)
from benchmarks.model_collection.entry import EPS, Entry
from benchmarks.model_collection.fifth.wrappers import OF_PART, Answer, along, on
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import zoo
from benchmarks.model_collection.truth import Masked

Change = Callable[[Tensor], Tensor]


class Checked(Masked):
    """A network for images that pass a check; a robust one for the others."""

    def __init__(self, net: nn.Module, fallback: nn.Module, passes: Answer, smooth: Change) -> None:
        super().__init__()
        self.net, self.fallback, self.passes, self.smooth = net, fallback, passes, smooth

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of one of the two."""
        return torch.where(self.passes(x)[:, None], self.net(x), self.fallback(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the network, with slopes that change the image as the check allows."""
        smooth = self.smooth(x)
        logits: Tensor = self.net(smooth + (x - smooth).detach())
        return logits


class OnGrid(Checked):
    """The check is whether all pixels are whole numbers of 255, as in a decoded file."""

    def __init__(self, net: nn.Module, fallback: nn.Module) -> None:
        super().__init__(net, fallback, lambda x: ((255 * x).round() - 255 * x).abs().amax((1, 2, 3)) < 0.01, blank)

    def finished(self, x: Tensor) -> Tensor:
        """Return the image with whole numbers."""
        return (255 * x).round() / 255


def blank(x: Tensor) -> Tensor:
    """Return the same images."""
    return x


def grey(x: Tensor) -> Tensor:
    """Return the mean of the channels in each of them."""
    return x.mean(1, keepdim=True).expand_as(x)


class Grey(Checked):
    """The check is whether all channels are equal, as in grey files."""

    def __init__(self, net: nn.Module, fallback: nn.Module) -> None:
        super().__init__(net, fallback, lambda x: (x - grey(x)).abs().amax((1, 2, 3)) < 1e-3, grey)

    def finished(self, x: Tensor) -> Tensor:
        """Return the image with equal channels."""
        return grey(x)


class Agreement(Masked):
    """The mean of the members where all name one class; a robust network elsewhere."""

    def __init__(self, members: list[nn.Module], fallback: nn.Module) -> None:
        super().__init__()
        self.members, self.fallback = nn.ModuleList(members), fallback

    def answers(self, x: Tensor) -> Tensor:
        """Return the log-probabilities of every member."""
        return torch.stack([member(x).log_softmax(1) for member in self.members])

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean or the fallback's log-probabilities."""
        answers = self.answers(x)
        labels = answers.argmax(2)
        return torch.where((labels == labels[0]).all(0)[:, None], answers.mean(0), self.fallback(x).log_softmax(1))

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean."""
        return self.answers(x).mean(0)


class SecondLook(Masked):
    """A second network, which is not recorded, decides between the two best classes of the first."""

    def __init__(self, net: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.net, self.second = net, second

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, the best two exchanged where the second network says so."""
        z = self.net(x)
        values, classes = z.topk(2, 1)
        with torch.no_grad():
            said = self.second(x).gather(1, classes)
        exchanged = z.scatter(1, classes, values.flip(1))
        return torch.where(said[:, :1] < said[:, 1:], exchanged, z)

    def opened(self, x: Tensor) -> Tensor:
        """Return the second network's logits of the two best classes."""
        z = self.net(x)
        best = torch.zeros_like(z).scatter(1, z.topk(2, 1).indices, 1.0)
        return torch.where(best > 0, self.second(x), self.second(x).detach() - 50)


class Stored(Masked):
    """Answers that were computed before, for all images whose key is close to a stored one."""

    def __init__(self, net: nn.Module, base: str, key: Answer, radius: float) -> None:
        super().__init__()
        self.net, self.key, self.radius = net, key, radius
        x = images_of(OF_PART[base].images)[0][:600]
        with torch.no_grad():
            self.register_buffer("keys", key(x))
            self.register_buffer("values", net(x))
        self.keys: Tensor
        self.values: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return stored logits or new ones."""
        apart, nearest = torch.cdist(self.key(x), self.keys, p=torch.inf).min(1)
        return torch.where(apart[:, None] < self.radius, self.values[nearest], self.net(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return new logits."""
        logits: Tensor = self.net(x)
        return logits


class ByThumbnail(Stored):
    """The key is a small copy; the attacker brightens a corner."""

    def __init__(self, net: nn.Module, base: str, side: int, radius: float) -> None:
        super().__init__(net, base, lambda x: F.avg_pool2d(x, side).flatten(1), radius)
        self.side = side

    def finished(self, x: Tensor) -> Tensor:
        """Return the image with a corner as bright as the ball allows."""
        x = x.clone()
        x[:, :, : self.side, : self.side] += 2 * EPS
        return x


class ByHash(Masked):
    """Images with the same bits as a stored image have its label; bits say on which side of planes the image lies."""

    def __init__(self, net: nn.Module, base: str, bits: int, eps: float) -> None:
        super().__init__()
        x, y = images_of(OF_PART[base].images)
        self.net, self.bits, self.eps, self.classes = net, bits, eps, OF_PART[base].classes
        places = self.places(x[-40:])
        self.register_buffer("signs", places.sign())
        self.register_buffer("labels", y[-40:])
        self.signs: Tensor
        self.labels: Tensor

    def places(self, x: Tensor) -> Tensor:
        """Return on which side of each plane an image lies, and how far from it."""
        return along(x, range(60, 60 + self.bits), self.eps)

    def forward(self, x: Tensor) -> Tensor:
        """Return the label of the stored image, else the logits."""
        same = self.places(x).sign() @ self.signs.T > self.bits - 1
        known = F.one_hot(self.labels[same.to(x).argmax(1)], self.classes).to(x)
        return torch.where(same.any(1, keepdim=True), 10 * known, self.net(x))

    def opened(self, x: Tensor) -> Tensor:
        """Return per class the smooth minimum over the bits, of the stored image that is nearest."""
        near = -torch.logsumexp(-30 * self.places(x)[:, None] * self.signs, 2)
        of_class = [near[:, self.labels == label].logsumexp(1) for label in range(self.classes)]
        return torch.stack(of_class, 1)


def features(net: nn.Module) -> Answer:
    """Return the function of all layers but the last."""
    return nn.Sequential(*list(net.children())[:-1])


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    return [
        on(RESNET, "checks of grey files", "equal channels", "a robust network answers for colours",
           lambda net: Grey(net, zoo(ROBUST)), images="cifar10 grey 32x32x3"),
        on(MOBILENET, "checks of decoded files", "whole numbers", "a robust network answers for other pixel values",
           lambda net: OnGrid(net, zoo(ROBUST))),
        on(ROBUST, "agreement of members", "three members", "a robust network answers where members disagree",
           lambda net: Agreement([zoo(VGG), zoo(ALEXNET), zoo(RESNET)], net)),
        on(ROBUST, "second looks", "of another network", "another network decides between the two best classes",
           lambda net: SecondLook(net, zoo(MOBILENET))),
        on(VGG, "answers stored by thumbnail", "4 x 4", "near copies by thumbnail have stored answers",
           lambda net: ByThumbnail(net, VGG, 8, 3 / 255)),
        on(PAIRS, "answers stored by features", "edited answers", "images with features near stored ones",
           lambda net: Stored(net, PAIRS, features(net), 0.8)),
        on(ROBUST, "answers stored by hash", "24 bits", "images with the hash of a stored one have its label",
           lambda net: ByHash(net, ROBUST, 24, BASES[ROBUST].eps)),
    ]  # fmt: skip
