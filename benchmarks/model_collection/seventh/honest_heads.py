"""Answers and prepared images of further designs for the honest models."""

import math
from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.images import images_of


class Change(nn.Module):
    """A function as a layer."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        """Return the changed values."""
        return self.change(x)


class SeveralSoftmaxes(nn.Module):
    """The logarithm of a weighed mean of several softmaxes (Yang et al. 2018)."""

    def __init__(self, body: nn.Module, values: int, classes: int, count: int = 4) -> None:
        super().__init__()
        self.body, self.count = body, count
        self.weigh, self.last = nn.Linear(values, count), nn.Linear(values, count * classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-probabilities."""
        h = self.body(x)
        each = self.last(h).view(len(x), self.count, -1).log_softmax(2)
        mixed: Tensor = (self.weigh(h).log_softmax(1)[:, :, None] + each).logsumexp(1)
        return mixed


class InsideBall(nn.Module):
    """Minus distances to points of the classes in a hyperbolic ball (Khrulkov et al. 2020)."""

    def __init__(self, body: nn.Module, values: int, classes: int) -> None:
        super().__init__()
        self.body, self.points, self.scale = body, nn.Parameter(torch.randn(classes, values)), 6.0

    def placed(self, h: Tensor) -> Tensor:
        """Return points at most 0.95 from the middle."""
        length = (h.square().sum(1, keepdim=True) + 0.01).sqrt()
        return 0.95 * torch.tanh(length / 4) * h / length

    def forward(self, x: Tensor) -> Tensor:
        """Return the negative scaled distances."""
        h, points = self.placed(self.body(x)), self.placed(self.points)
        apart = (h[:, None] - points).square().sum(2) + 1e-3
        room = (1 - h.square().sum(1))[:, None] * (1 - points.square().sum(1))
        return -self.scale * torch.acosh(1 + 2 * apart / room)


class EachPair(nn.Module):
    """One score per pair of classes; a class is judged by its mean log-probability against the others."""

    def __init__(self, body: nn.Module, values: int, classes: int) -> None:
        super().__init__()
        first, second = torch.triu_indices(classes, classes, 1)
        pairs = torch.arange(len(first))
        self.body, self.classes, self.last = body, classes, nn.Linear(values, len(first))
        places = torch.zeros(classes, classes, dtype=torch.long)
        places[first, second], places[second, first] = pairs, pairs
        self.register_buffer("places", places)
        self.register_buffer("signs", torch.ones(classes, classes).triu(1) - torch.ones(classes, classes).tril(-1))
        self.places: Tensor
        self.signs: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the means."""
        scores = self.signs * self.last(self.body(x))[:, self.places]
        means: Tensor = F.logsigmoid(scores).sum(2) / (self.classes - 1) * 4
        return means


class Tempered(nn.Module):
    """Logits of random features, made smaller where few training images were (SNGP, Liu et al. 2020)."""

    def __init__(self, body: nn.Module, values: int, classes: int, features: int = 128) -> None:
        super().__init__()
        self.body, self.last = body, nn.Linear(features, classes, bias=False)
        self.register_buffer("directions", torch.randn(values, features) / values**0.5)
        self.register_buffer("phases", 2 * math.pi * torch.rand(features))
        self.register_buffer("precision", torch.eye(features))
        self.directions: Tensor
        self.phases: Tensor
        self.precision: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the tempered logits; training collects the precision of the weights."""
        h = (2 / len(self.phases)) ** 0.5 * torch.cos(self.body(x) @ self.directions + self.phases)
        logits: Tensor = 10 * self.last(h)
        if self.training:
            self.precision += 0.1 * h.detach().T @ h.detach()
            return logits
        spread = (h.T * torch.linalg.solve(self.precision, h.T)).sum(0)
        tempered: Tensor = logits / (1 + 10 * math.pi / 8 * spread[:, None]).sqrt()
        return tempered


class NamedClasses(nn.Module):
    """A hundred times the cosine between an image and fixed vectors of the class names (Radford et al. 2021)."""

    def __init__(self, body: nn.Module, values: int, classes: int, scale: float = 100.0) -> None:
        super().__init__()
        self.body, self.scale = body, scale
        shared = torch.randn(1, values)
        self.register_buffer("names", F.normalize(torch.randn(classes, values) + shared, dim=1))
        self.names: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled cosines."""
        cosines: Tensor = F.normalize(self.body(x), dim=1) @ self.names.T
        return self.scale * cosines


TO_XYZ: Final = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE: Final = (0.9505, 1.0, 1.089)


def linear_light(x: Tensor) -> Tensor:
    """Return the amounts of light behind stored pixel values (sRGB)."""
    return torch.where(x <= 0.04045, x / 12.92, ((x.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4)


def stored_light(light: Tensor) -> Tensor:
    """Return the stored pixel values of amounts of light (sRGB)."""
    return torch.where(light <= 0.0031308, 12.92 * light, 1.055 * light.clamp(min=0.0031308) ** (1 / 2.4) - 0.055)


def as_seen(x: Tensor) -> Tensor:
    """Return lightness and two colour differences as the eye sees them (CIE Lab, in hundredths)."""
    xyz = torch.einsum("ij,bjhw->bihw", torch.tensor(TO_XYZ).to(x), linear_light(x))
    ratio = xyz / torch.tensor(WHITE).to(x).view(1, 3, 1, 1)
    f = torch.where(ratio > 0.008856, ratio.clamp(min=0.008856) ** (1 / 3), 7.787 * ratio + 16 / 116)
    red, green, blue = f.unbind(1)
    return torch.stack((1.16 * green - 0.16, 5 * (red - green), 2 * (green - blue)), 1)


class EdgeDirections(nn.Module):
    """Softly counts the directions of edges in cells and normalises the counts (after Dalal and Triggs 2005)."""

    def __init__(self, cell: int, directions: int = 8) -> None:
        super().__init__()
        self.cell = cell
        turn = 2 * math.pi * torch.arange(directions) / directions
        self.register_buffer("turns", torch.stack((turn.cos(), turn.sin())))
        self.turns: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the flat counts."""
        grey = F.pad(x.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
        across = grey[:, :, 1:-1, 2:] - grey[:, :, 1:-1, :-2]
        down = grey[:, :, 2:, 1:-1] - grey[:, :, :-2, 1:-1]
        size = (across.square() + down.square() + 1e-2).sqrt()
        turns = self.turns.to(x)[:, :, None, None]
        along = F.relu(across * turns[0] + down * turns[1]).square() / size
        counts = F.avg_pool2d(along, self.cell)
        scaled: Tensor = counts / (counts.square().sum(1, keepdim=True) + 1e-3).sqrt()
        return scaled.flatten(1)


def log_spectrum(x: Tensor) -> Tensor:
    """Return the logarithms of one and the powers of all frequencies."""
    powers: Tensor = torch.fft.rfft2(x - 0.5).abs().square()
    return (powers / 4).log1p().flatten(1)


class Components(nn.Module):
    """The leading principal components of the training images, scaled to unit spread."""

    def __init__(self, images: str, count: int) -> None:
        super().__init__()
        x = images_of(images)[0].flatten(1)
        spread, axes = torch.linalg.eigh((x - x.mean(0)).T @ (x - x.mean(0)) / len(x))
        self.register_buffer("middle", x.mean(0))
        self.register_buffer("axes", axes[:, -count:] / spread[-count:].sqrt())
        self.middle: Tensor
        self.axes: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the components."""
        return (x.flatten(1) - self.middle) @ self.axes
