"""Unusual small networks whose gradients are true: spectral, gated, routed, generative, recurrent and others."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.model_collection.second.hard_networks import body


class ComplexDense(nn.Module):
    """Dense layers of complex numbers over the spectrum; sizes become logits."""

    def __init__(self, values: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(values // 2 + 1, width, 2) / values**0.5)
        self.second = nn.Parameter(torch.randn(width, classes, 2) / width**0.5)
        self.scale = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled squared sizes."""
        h = torch.fft.rfft(x.flatten(1) - 0.3, norm="ortho") @ torch.view_as_complex(self.first)
        h = h * torch.sigmoid(h.abs() - 1) @ torch.view_as_complex(self.second)
        return self.scale * (h.real.square() + h.imag.square() + 1e-6).sqrt()  # type: ignore[no-any-return]


class FourierFeatures(nn.Module):
    """Sines and cosines of random projections (Rahimi and Recht 2007), and a dense layer."""

    def __init__(self, values: int, classes: int, features: int = 600, scale: float = 3.0) -> None:
        super().__init__()
        self.register_buffer("project", scale * torch.randn(values, features) / values**0.5)
        self.project: Tensor
        self.last = nn.Linear(2 * features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        angles = x.flatten(1) @ self.project
        logits: Tensor = self.last(torch.cat((angles.sin(), angles.cos()), 1))
        return logits


class SoftTrees(nn.Module):
    """Decision trees with soft splits."""

    def __init__(self, channels: int, classes: int, trees: int = 6, depth: int = 4) -> None:
        super().__init__()
        self.trees, self.depth, self.body = trees, depth, body(channels, 8)
        self.splits, self.leaves = nn.Linear(256, trees * (2**depth - 1)), nn.Parameter(torch.randn(trees, 16, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean leaves."""
        right = torch.sigmoid(self.splits(self.body(x))).view(len(x), self.trees, -1)
        reach = torch.ones_like(right[..., :1])
        for level in range(self.depth):
            here = right[..., 2**level - 1 : 2 ** (level + 1) - 1]
            reach = torch.stack((reach * (1 - here), reach * here), -1).flatten(2)
        return torch.einsum("btl,tlc->bc", reach, self.leaves)


class Kernels(nn.Module):
    """Smooth kernels around learned centres in feature space."""

    def __init__(self, channels: int, classes: int, centres: int = 40) -> None:
        super().__init__()
        self.body, self.mix = body(channels, 8), nn.Linear(256, 24)
        self.centres, self.last = nn.Parameter(torch.randn(centres, 24)), nn.Linear(centres, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        distance = (self.mix(self.body(x))[:, None] - self.centres).square().mean(2)
        logits: Tensor = self.last(1 / (1 + distance))
        return 4 * logits


class Gaussians(nn.Module):
    """A generative head: the log-density of each class in feature space."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body, self.mix = body(channels, 8), nn.Linear(256, 16)
        self.means = nn.Parameter(torch.randn(classes, 16))
        self.spread = nn.Parameter(torch.zeros(classes, 16))

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-densities."""
        distance = (self.mix(self.body(x))[:, None] - self.means).square()
        return -(distance * torch.exp(-self.spread) + self.spread).sum(2) / 2  # type: ignore[no-any-return]


class Products(nn.Module):
    """A polynomial network: each layer multiplies by a linear map of the image (Chrysos et al. 2020)."""

    def __init__(self, values: int, classes: int, width: int = 64, degree: int = 3) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(values, width) for _ in range(degree))
        self.mixes = nn.ModuleList(nn.Linear(width, width) for _ in range(degree - 1))
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = x.flatten(1) - 0.3
        h = self.maps[0](x)
        for layer, mix in zip(list(self.maps)[1:], self.mixes, strict=True):
            h = h + layer(x) * mix(h)
        logits: Tensor = self.last(h)
        return logits


class HyperNetwork(nn.Module):
    """A small network writes the weights of the last layer for each image."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body, self.classes = body(channels, 8), classes
        self.write, self.read = nn.Linear(256, 12 * classes), nn.Linear(256, 12)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.body(x)
        weights = self.write(h).view(len(x), self.classes, 12)
        logits: Tensor = (weights @ self.read(h)[:, :, None]).squeeze(2)
        return logits


class Experts(nn.Module):
    """Experts mixed by a smooth gate."""

    def __init__(self, channels: int, classes: int, experts: int = 4) -> None:
        super().__init__()
        self.body, self.gate = body(channels, 8), nn.Linear(256, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, classes))
            for _ in range(experts))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the mixed logits."""
        h = self.body(x)
        answers = torch.stack([expert(h) for expert in self.experts], 2)
        return (answers * self.gate(h).softmax(1)[:, None]).sum(2)  # type: ignore[no-any-return]


class RowReader(nn.Module):
    """A GRU or LSTM over rows with full gradients."""

    def __init__(self, kind: type[nn.GRU] | type[nn.LSTM], values: int, classes: int, width: int = 48) -> None:
        super().__init__()
        self.reader, self.head = kind(values, width, batch_first=True), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the last state."""
        states, _ = self.reader(x.transpose(1, 2).flatten(2))
        logits: Tensor = self.head(states[:, -1])
        return logits


class Aligned(nn.Module):
    """Shifts and scales the image by a learned smooth map (spatial transformer), then classifies."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(49 * channels, 16), nn.Tanh())
        self.turn, self.body, self.last = nn.Linear(16, 6), body(channels, 8), nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the moved image."""
        same = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).to(x)
        maps = same + 0.3 * torch.tanh(self.turn(self.look(x))).view(-1, 2, 3)
        grid = F.affine_grid(maps, list(x.shape), align_corners=False)
        logits: Tensor = self.last(self.body(F.grid_sample(x, grid, align_corners=False)))
        return logits


class Unrolled(nn.Module):
    """Euler steps of a small differential equation, recorded or recomputed in the backward pass."""

    def __init__(self, channels: int, classes: int, recompute: bool = False, steps: int = 6) -> None:
        super().__init__()
        self.body, self.steps, self.recompute = body(channels, 8), steps, recompute
        self.field = nn.Sequential(nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 256))
        self.last = nn.Linear(256, classes)

    def moved(self, h: Tensor) -> Tensor:
        """Return the state after one step."""
        state: Tensor = h + 0.3 * self.field(h)
        return state

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the final state."""
        h = self.body(x)
        for _ in range(self.steps):
            h = checkpoint(self.moved, h, use_reentrant=False) if self.recompute else self.moved(h)
        logits: Tensor = self.last(h)
        return logits


class LinearAttention(nn.Module):
    """Attention without a softmax (Katharopoulos et al. 2020)."""

    def __init__(self, channels: int, patch: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed, self.mix = nn.Conv2d(channels, width, patch, patch), nn.Linear(width, 3 * width)
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the mean patch."""
        h = self.embed(x).flatten(2).transpose(1, 2)
        query, key, value = self.mix(h).chunk(3, 2)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        h = h + query @ (key.transpose(1, 2) @ value) / (query @ key.sum(1)[:, :, None])
        logits: Tensor = self.last(h.mean(1))
        return logits


class Prototypes(nn.Module):
    """The negative distance to the nearest learned prototypes of each class, softly."""

    def __init__(self, channels: int, classes: int, each: int = 3) -> None:
        super().__init__()
        self.body, self.mix = body(channels, 8), nn.Linear(256, 24)
        self.points = nn.Parameter(torch.randn(classes, each, 24))

    def forward(self, x: Tensor) -> Tensor:
        """Return soft minima of distances."""
        distance = (self.mix(self.body(x))[:, None, None] - self.points).square().sum(3)
        return (-distance / 2).logsumexp(2)  # type: ignore[no-any-return]


class Ordinal(nn.Module):
    """Scores from one number and learned places on a line, per two axes."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body, self.line = body(channels, 8), nn.Linear(256, 2)
        self.places = nn.Parameter(2 * torch.randn(classes, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return negative squared distances in the plane."""
        return -2 * (self.line(self.body(x))[:, None] - self.places).square().sum(2)  # type: ignore[no-any-return]


class Bilinear(nn.Module):
    """Means of products of two feature maps (Lin et al. 2015)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 12, 5, 2, 2), nn.Conv2d(channels, 12, 5, 2, 2)
        self.last = nn.Linear(144, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        products = self.first(x).flatten(2) @ F.softplus(self.second(x)).flatten(2).transpose(1, 2)
        logits: Tensor = self.last(products.flatten(1) / 20)
        return logits
