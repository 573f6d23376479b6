"""Small networks with hard decisions inside."""

import torch
from torch import Tensor, nn

from benchmarks.model_collection.second.hard_layers import Cut, Opening, ranked, step, winner


def body(channels: int, width: int = 12) -> nn.Sequential:
    """Two convolutions and a 4 x 4 grid: 32 times `width` values."""
    first = [nn.Conv2d(channels, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
    second = [nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(4), nn.Flatten())


class Trees(nn.Module):
    """Decision trees over features; every split is hard."""

    def __init__(self, channels: int, classes: int, trees: int = 8, depth: int = 4) -> None:
        super().__init__()
        self.trees, self.depth = trees, depth
        self.body, self.splits = body(channels), nn.Linear(384, trees * (2**depth - 1))
        self.norm, self.step = nn.BatchNorm1d(trees * (2**depth - 1)), step(2.0)
        self.leaves = nn.Parameter(torch.randn(trees, 2**depth, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the leaves reached."""
        right = self.step(self.norm(self.splits(self.body(x)))).view(len(x), self.trees, -1)
        reach = torch.ones_like(right[..., :1])
        for level in range(self.depth):
            here = right[..., 2**level - 1 : 2 ** (level + 1) - 1]
            reach = torch.stack((reach * (1 - here), reach * here), -1).flatten(2)
        return torch.einsum("btl,tlc->bc", reach, self.leaves)


class Orientations(nn.Module):
    """Counts the directions of the image's edges in cells, and a dense layer."""

    def __init__(self, channels: int, classes: int, cells: int = 4, bins: int = 8) -> None:
        super().__init__()
        angles = torch.arange(bins) * torch.pi / bins
        self.register_buffer("directions", torch.stack((angles.cos(), angles.sin())))
        self.directions: Tensor
        self.winner, self.pool = winner(20.0), nn.AdaptiveAvgPool2d(cells)
        self.last = nn.Sequential(nn.Linear(bins * cells**2, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        grey = x.mean(1)
        down, across = grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1], grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]
        strength = (torch.stack((down, across), -1) @ self.directions).abs()
        logits: Tensor = self.last(self.pool(self.winner(strength).permute(0, 3, 1, 2)).flatten(1))
        return logits


class Comparisons(nn.Module):
    """Compares each pixel with its neighbours and classifies the outcomes (census transform)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.step, self.body, self.last = step(30.0), body(4 * channels), nn.Linear(384, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        moved = [x.roll(shift, (2, 3)) for shift in ((1, 0), (0, 1), (2, 2), (2, -2))]
        logits: Tensor = self.last(self.body(torch.cat([self.step(x - other - 0.06) for other in moved], 1)))
        return logits


class Places(nn.Module):
    """Classifies the places where filters respond most strongly."""

    def __init__(self, channels: int, classes: int, filters: int = 48) -> None:
        super().__init__()
        self.filters = nn.Sequential(
            nn.Conv2d(channels, 16, 5, 1, 2), nn.ReLU(), nn.Conv2d(16, filters, 5, 2, 2), nn.BatchNorm2d(filters)
        )
        self.winner = winner(3.0)
        self.last = nn.Sequential(nn.Linear(2 * filters, 96), nn.ReLU(), nn.Linear(96, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.filters(x)
        chosen = self.winner(h.flatten(2)).view_as(h)
        down = (chosen.sum(3) * torch.linspace(-1, 1, h.shape[2]).to(h)).sum(2)
        across = (chosen.sum(2) * torch.linspace(-1, 1, h.shape[3]).to(h)).sum(2)
        logits: Tensor = self.last(torch.cat((down, across), 1))
        return logits


class Groups(nn.Module):
    """Keeps of each group of features only which one is the largest (winner hashes)."""

    def __init__(self, channels: int, classes: int, groups: int = 48, size: int = 4) -> None:
        super().__init__()
        self.size, self.body, self.mix = size, body(channels), nn.Linear(384, groups * size)
        self.winner, self.last = winner(2.0), nn.Linear(groups * size, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.mix(self.body(x)).unflatten(1, (-1, self.size))
        logits: Tensor = self.last(self.winner(h).flatten(1))
        return logits


class LocalVotes(nn.Module):
    """Every place of a small network with a narrow view has one vote, or the median decides."""

    def __init__(self, channels: int, classes: int, end: Opening, votes: bool) -> None:
        super().__init__()
        self.local = nn.Sequential(
            nn.Conv2d(channels, 24, 5, 2, 2), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 32, 5, 2, 2), nn.ReLU(),
            nn.Conv2d(32, classes, 1),
        )  # fmt: skip
        self.end, self.votes = end, votes

    def forward(self, x: Tensor) -> Tensor:
        """Return the counts or medians."""
        h = self.local(x)
        if self.votes:
            return 10 * torch.as_tensor(self.end(h.flatten(2).transpose(1, 2))).mean(1)
        scores: Tensor = self.end(h)
        return scores


class Equilibrium(nn.Module):
    """Iterates to a fixed point without recording, then adds one recorded step that does not see the image."""

    def __init__(self, channels: int, classes: int, width: int = 96, steps: int = 12) -> None:
        super().__init__()
        self.steps, self.body, self.enter = steps, body(channels), nn.Linear(384, width)
        self.again, self.cut, self.head = nn.Linear(width, width), Cut(), nn.Linear(width, classes)
        self.skip = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the fixed point, plus a little of the mean colour."""
        drive = self.enter(self.body(x))
        h = torch.zeros_like(drive)
        for _ in range(self.steps):
            h = torch.tanh(drive + 0.5 * self.again(h))
        logits: Tensor = self.head(torch.tanh(0.5 * self.again(self.cut(h)) + self.cut(drive)))
        return logits + 0.1 * torch.as_tensor(self.skip(x.mean((2, 3))))


class HardAttention(nn.Module):
    """Patches that each look at one other patch."""

    def __init__(self, channels: int, side: int, patch: int, classes: int, width: int = 48) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2, width))
        self.mix, self.winner, self.cut = nn.Linear(width, 3 * width), winner(), Cut()
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 96), nn.GELU(), nn.Linear(96, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the mean patch."""
        h = self.embed(x).flatten(2).transpose(1, 2) + self.place
        query, key, value = self.mix(h).chunk(3, -1)
        h = self.cut(h) + self.winner(query @ key.transpose(1, 2) / 7) @ torch.tanh(self.cut(value))
        logits: Tensor = self.last(h.mean(1) + 0.02 * x.mean((1, 2, 3))[:, None])
        return logits


class Ranked(nn.Module):
    """A dense network that sees only the ranks of its features."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body, self.mix, self.ranked, self.last = (
            body(channels),
            nn.Linear(384, 64),
            ranked(),
            nn.Linear(64, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.last(self.ranked(self.mix(self.body(x))))
        return logits
