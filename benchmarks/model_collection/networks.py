"""Small networks that are trained in seconds and kept in the cache folder, and the networks of the zoo."""

import hashlib
import io
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import robustassay as ra
from benchmarks.model_collection.images import images_of
from robustassay.cache_folder import cache_folder
from robustassay.files import write_atomically

Make = Callable[[], nn.Module]
Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]
RECIPE: Final = "adam 1"
"""Changes with the training below, so that older weights in the cache folder are not used."""


@lru_cache
def zoo(name: str) -> nn.Module:
    """Return a network of the zoo; whoever changes it makes a copy."""
    return ra.load_model(name)


def plain(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross-entropy."""
    return F.cross_entropy(net(x), y)


def trained(
    name: str, make: Make, images: str, steps: int = 200, eps: float = 0.0, objective: Objective = plain
) -> nn.Module:
    """Return a network trained on all images of a source, adversarially for eps above 0."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make()
        digest = hashlib.sha256(f"{RECIPE} {images} {steps} {eps} {net}".encode()).hexdigest()[:16]
        path = cache_folder() / "model_collection" / f"{name.replace(' ', '-')}-{digest}.pt"
        if not path.exists():
            fit(net, *images_of(images), steps, eps, objective)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = io.BytesIO()
            torch.save(net.state_dict(), content)
            write_atomically(path, content.getvalue())
    net.load_state_dict(torch.load(path, weights_only=True))
    return net.eval()


def fit(net: nn.Module, x: Tensor, y: Tensor, steps: int, eps: float, objective: Objective = plain) -> None:
    """Minimise the objective on random batches; with eps, on the worst of two sign steps."""
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, total_steps=steps)
    net.train()
    with torch.enable_grad():
        for _ in range(steps):
            rows = torch.randint(len(x), (64,))
            batch = worst(net, x[rows], y[rows], eps) if eps else x[rows]
            loss = objective(net, batch, y[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()


def worst(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return images after two sign steps from a random start."""
    delta = eps * (2 * torch.rand_like(x) - 1)
    for _ in range(2):
        delta.requires_grad_(True)
        (slope,) = torch.autograd.grad(F.cross_entropy(net((x + delta).clamp(0, 1)), y), delta)
        delta = (delta + 0.75 * eps * slope.sign()).clamp(-eps, eps).detach()
    return (x + delta).clamp(0, 1)


Norm = Callable[[int], nn.Module]


def convolutions(
    channels: int, classes: int, activation: Make = nn.ReLU, norm: Norm = nn.BatchNorm2d, width: int = 8
) -> nn.Module:
    """Three convolutions, the last two with stride 2, and a dense layer over a 4 x 4 grid."""
    sizes = (channels, width, 2 * width, 2 * width)
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(sizes)):
        layers += [nn.Conv2d(before, after, 3, 2 if number else 1, 1), norm(after), activation()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * width, classes))


def perceptron(values: int, classes: int, activation: Make = nn.ReLU, width: int = 128) -> nn.Module:
    """Two hidden layers."""
    hidden = [nn.Linear(values, width), activation(), nn.Linear(width, width), activation()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, classes))


def linear(values: int, classes: int) -> nn.Module:
    """One dense layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(values, classes))


class Transformer(nn.Module):
    """Attention over patches, after Dosovitskiy et al. 2021."""

    def __init__(self, channels: int, side: int, patch: int, classes: int, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.dense = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(depth)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.embed(x).flatten(2).transpose(1, 2) + self.place
        for number, (mix, dense) in enumerate(zip(self.mix, self.dense, strict=True)):
            query, key, value = mix(self.norms[2 * number](h)).chunk(3, -1)
            h = h + torch.softmax(query @ key.transpose(1, 2) / query.shape[-1] ** 0.5, -1) @ value
            h = h + dense(self.norms[2 * number + 1](h))
        logits: Tensor = self.head(self.norms[-1](h).mean(1))
        return logits


class Rows(nn.Module):
    """A recurrent network that reads an image row by row."""

    def __init__(self, channels: int, side: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.enter = nn.Linear(channels * side, width)
        self.again = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after the last row."""
        h = x.new_zeros(len(x), self.width)
        for row in x.transpose(1, 2).flatten(2).unbind(1):
            h = torch.tanh(self.enter(row) + self.again(h))
        logits: Tensor = self.head(h)
        return logits


class Square(nn.Module):
    """A quadratic activation."""

    def forward(self, h: Tensor) -> Tensor:
        """Return h + h^2 / 4."""
        return h + h.square() / 4


class SortPairs(nn.Module):
    """Sorts neighbouring features (Anil et al. 2019); its slope is 1 everywhere."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the larger values first."""
        first, second = h.chunk(2, 1)
        return torch.cat((torch.maximum(first, second), torch.minimum(first, second)), 1)


class Cosine(nn.Module):
    """Classifies by the angle between features and class vectors."""

    def __init__(self, net: nn.Module, classes: int, scale: float = 10.0) -> None:
        super().__init__()
        self.net, self.scale = net, scale
        self.centres = nn.Parameter(torch.randn(classes, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled cosines."""
        cosines: Tensor = F.normalize(self.net(x), dim=1) @ F.normalize(self.centres, dim=1).T
        return self.scale * cosines
