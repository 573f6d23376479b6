"""Honest networks of known design that were trained in further ways; nothing is hidden."""

from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, perceptron, plain, worst
from benchmarks.model_collection.ninth.a_parts import one
from benchmarks.model_collection.seventh.honest_networks import features


def missed(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the adversarial loss plus changes of the answers, more so of images that are missed (Wang et al. 2020)."""
    moved, still = net(worst(net, x, y, eps)), net(x)
    wrong = moved.softmax(1).masked_fill(F.one_hot(y, moved.shape[1]).bool(), 0).amax(1)
    change = F.kl_div(moved.log_softmax(1), still.softmax(1), reduction="none").sum(1)
    sure = still.softmax(1).gather(1, y[:, None])[:, 0]
    total: Tensor = F.cross_entropy(moved, y) - torch.log(1.0001 - wrong).mean() + 4 * (change * (1 - sure)).mean()
    return total


def worst_noise(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the loss of the worst of five noises per image; no slope by the image is used."""
    noisy = torch.stack([(x + eps * torch.randn_like(x).sign()).clamp(0, 1) for _ in range(5)])
    with torch.no_grad():
        losses = torch.stack([F.cross_entropy(net(images), y, reduction="none") for images in noisy])
    return plain(net, noisy[losses.argmax(0), torch.arange(len(y))], y)


def cut_out(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of images without a random square (DeVries and Taylor 2017)."""
    down, across = torch.arange(x.shape[2])[:, None], torch.arange(x.shape[3])
    top, left = torch.randint(-4, x.shape[2] - 4, (2, len(x), 1, 1, 1))
    hidden = (down >= top) & (down < top + 9) & (across >= left) & (across < left + 9)
    return plain(net, torch.where(hidden, torch.full_like(x, 0.5), x), y)


class Guesses(nn.Module):
    """Classes, and in training also by how many quarters an image was turned."""

    def __init__(self, body: nn.Module, values: int, classes: int) -> None:
        super().__init__()
        self.body, self.last, self.turn = body, nn.Linear(values, classes), nn.Linear(values, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the classes."""
        logits: Tensor = self.last(F.relu(self.body(x)))
        return logits


def turns_guessed(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of the classes plus that of guessed turns (Hendrycks et al. 2019)."""
    assert isinstance(net, Guesses)
    turn = torch.arange(len(x)) % 4
    turned = torch.cat([torch.rot90(x[turn == number], number, (2, 3)) for number in range(4)])
    guessed = net.turn(F.relu(net.body(turned)))
    return plain(net, x, y) + F.cross_entropy(guessed, turn.sort().values)


class Counting(nn.Module):
    """Layers that count the steps of their training."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers
        self.register_buffer("steps", torch.zeros(()))
        self.steps: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.layers(x)
        return logits


def bounded(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the loss plus that of the worst logits that growing intervals allow (Gowal et al. 2018)."""
    assert isinstance(net, Counting)
    net.steps += 1
    reach = eps * min(1.0, float(net.steps) / 300)
    low, high = (x - reach).clamp(0, 1), (x + reach).clamp(0, 1)
    for layer in net.layers.children():
        if isinstance(layer, nn.Linear):
            middle, half = layer((low + high) / 2), (high - low) / 2 @ layer.weight.abs().T
            low, high = middle - half, middle + half
        else:
            low, high = layer(low), layer(high)
    own = F.one_hot(y, low.shape[1]).bool()
    return plain(net, x, y) + F.cross_entropy(torch.where(own, low, high), y)


def straight(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the loss, its slope and how far it is from straight nearby (Qin et al. 2019)."""
    start = x.clone().requires_grad_(True)
    here = F.cross_entropy(net(start), y, reduction="none")
    (slope,) = torch.autograd.grad(here.sum(), start, create_graph=True)
    step = eps * (torch.randn_like(x) + 2 * slope.detach() / slope.detach().std()).sign()
    there = F.cross_entropy(net((x + step).clamp(0, 1)), y, reduction="none")
    rise = (slope * step).flatten(1).sum(1)
    return (here + rise.abs() + 2 * (there - here - rise).abs()).mean()


def moved_together(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the loss plus that under one move per class, the sign of its summed slope (Shafahi et al. 2020)."""
    start = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(plain(net, start, y), start)
    moves = [eps * slope[y == label].sum(0).sign() for label in range(int(y.max()) + 1)]
    return plain(net, x, y) + plain(net, (x + torch.stack(moves)[y]).clamp(0, 1), y)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in LESSONS]


LESSONS: Final[list[tuple[Any, ...]]] = [
    ("missed images count more", "textures", 28, lambda: convolutions(3, 4, nn.LeakyReLU),
        partial(missed, eps=20 / 255)),
    ("worst of five noises", "spots", 8, lambda: convolutions(5, 20), partial(worst_noise, eps=16 / 255)),
    ("cut-out squares", "cifar10 grey 28x28", 8, lambda: convolutions(1, 10, nn.GELU), cut_out, 0, 300),
    ("guessed turns", "cifar10 six classes", 8, lambda: Guesses(features(3, 48), 48, 6), turns_guessed),
    ("bounds by intervals", "symbols 10", 12, lambda: Counting(perceptron(784, 10, width=64)),
        partial(bounded, eps=6 / 255), 0, 400),
    ("straightened losses", "waves", 23, lambda: convolutions(1, 2, nn.Softplus), partial(straight, eps=16 / 255)),
    ("one move for each class", "symbols 11", 24, lambda: convolutions(1, 11, nn.Mish),
        partial(moved_together, eps=20 / 255)),
]  # fmt: skip
