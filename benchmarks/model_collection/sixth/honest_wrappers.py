"""Honest models: known networks behind harmless wrappers, and prepared for use as users do it."""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.fusion import fuse_conv_bn_eval

from benchmarks.model_collection.bases import BASES, CERTIFIED, MOBILENET, RESNET, ROBUST, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import trained, zoo

Change = Callable[[Tensor], Tensor]
Make = Callable[[nn.Module], nn.Module]


class Changed(nn.Module):
    """A network between two changes with true gradients."""

    def __init__(self, net: nn.Module, before: Change = lambda x: x, after: Change = lambda z: z) -> None:
        super().__init__()
        self.net, self.before, self.after = net, before, after

    def forward(self, x: Tensor) -> Tensor:
        """Return the changed logits of the changed image."""
        return self.after(self.net(self.before(x)))


class NewHead(nn.Module):
    """A trained dense layer on the values before the last layer of a known network, which stays as it is."""

    def __init__(self, net: nn.Module, classes: int) -> None:
        super().__init__()
        known = copy.deepcopy(net).eval().requires_grad_(False)
        known.head = nn.Identity()
        self.known, self.last = (known,), nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the new layer's logits."""
        logits: Tensor = self.last(self.known[0](x))
        return logits


class Vectorised(nn.Module):
    """A function of one image, applied to all by vmap."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        weights = {**dict(self.net.named_parameters()), **dict(self.net.named_buffers())}
        logits: Tensor = vmap(lambda image: functional_call(self.net, weights, (image[None],))[0])(x)
        return logits


def folded(net: nn.Module) -> nn.Module:
    """Return a copy whose normalisations are part of the convolutions before them."""
    made = copy.deepcopy(net).eval()
    for part in made.modules():
        names = dict(part.named_children())
        for conv, norm in (("stem", "norm"), ("conv1", "norm1"), ("conv2", "norm2")):
            first, second = names.get(conv), names.get(norm)
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                setattr(part, conv, fuse_conv_bn_eval(first, second))
                setattr(part, norm, nn.Identity())
    return made


def recorded(net: nn.Module) -> nn.Module:
    """Return the network as recorded by TorchScript for one batch, with any number of images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made: nn.Module = torch.jit.trace(copy.deepcopy(net).eval(), torch.zeros(2, 3, 32, 32))  # type: ignore[no-untyped-call]
    return made


def middle(x: Tensor) -> Tensor:
    """Return the middle 32 x 32 pixels."""
    top, left = (x.shape[2] - 32) // 2, (x.shape[3] - 32) // 2
    return x[:, :, top : top + 32, left : left + 32]


TO_LIGHT: Final = ((0.299, 0.587, 0.114), (-0.169, -0.331, 0.5), (0.5, -0.419, -0.081))
"""From red, green and blue to brightness and two differences of colour."""


def fewer_colours(x: Tensor) -> Tensor:
    """Store the colour at half size, as videos do, and return to red, green and blue."""
    matrix = torch.tensor(TO_LIGHT).to(x)
    both = torch.einsum("ij,bjhw->bihw", matrix, x)
    light, colour = both[:, :1], both[:, 1:]
    colour = F.interpolate(F.avg_pool2d(colour, 2), scale_factor=2.0, mode="bilinear")
    back: Tensor = torch.einsum("ij,bjhw->bihw", torch.linalg.inv(matrix), torch.cat((light, colour), 1))
    return back


def calmed(x: Tensor) -> Tensor:
    """Reduce the smooth total variation by eight steps down its slope (Rudin et al. 1992)."""
    h = x
    for _ in range(8):
        padded = F.pad(h, (1, 1, 1, 1), mode="replicate")
        across, down = padded.diff(dim=3)[:, :, 1:-1], padded.diff(dim=2)[:, :, :, 1:-1]
        flow = [step / (step.square() + 0.01).sqrt() for step in (across, down)]
        h = h + 0.01 * (flow[0].diff(dim=3) + flow[1].diff(dim=2)) + 0.05 * (x - h)
    return h


def by_frequency(z: Tensor) -> Tensor:
    """Add the logarithms of assumed frequencies of classes, from 1 to 0.1 (Menon et al. 2021)."""
    return z + torch.logspace(0, -1, z.shape[1]).log().to(z)


def on(family: str, base: str, eps: float, made: str, make: Make, **facts: Any) -> Entry:
    """Return a wrapped base, at a radius in 255ths."""
    found = BASES[base]
    known: dict[str, Any] = {"images": found.images, "classes": found.classes, "shape": found.shape, **facts}
    build = partial(wrapped, base, make)
    return Entry(f"{family}, {base}", family, "honest", made, build, eps=eps / 255, **known)


def wrapped(base: str, make: Make) -> nn.Module:
    """Return the wrapped base, ready for use."""
    return make(BASES[base].load()).eval()


def around(before: Change = lambda x: x, after: Change = lambda z: z) -> Make:
    """Return a wrapper that changes images or logits."""
    return lambda net: Changed(net, before, after)


def groups_from_known() -> nn.Module:
    """Train a new last layer of a robust network for five groups of classes."""
    return trained("sixth honest new head", lambda: NewHead(zoo(ROBUST), 5), "cifar10 five groups", 150)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    larger: dict[str, Any] = {"images": "cifar10 40x40", "shape": (3, 40, 40)}
    five: dict[str, Any] = {"images": "cifar10 five groups", "classes": 5, "shape": (3, 32, 32)}
    return [
        on("centre crops", ROBUST, 8, "only the middle of the image is used", around(middle), **larger),
        on("colour at half size", ROBUST, 8, "colour is stored at half size", around(fewer_colours)),
        on("reduced variation", CERTIFIED, 8, "eight steps of smooth denoising", around(calmed)),
        on("frequencies of classes", MOBILENET, 4, "log frequencies are added", around(after=by_frequency)),
        on("calls by vmap", CERTIFIED, 5, "vmap over single images", Vectorised),
        on("folded normalisation", RESNET, 8, "normalisation folded into convolutions", folded),
        on("recorded by TorchScript", VGG, 1, "traced by TorchScript", recorded),
        Entry("new heads, five groups", "new heads", "honest", "a new last layer", groups_from_known, eps=8 / 255,
              **five),
    ]  # fmt: skip
