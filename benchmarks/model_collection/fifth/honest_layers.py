"""Layers and networks of unusual design, all with true gradients."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.second.hard_networks import body
from benchmarks.model_collection.second.smooth_layers import head


class Implicit(nn.Module):
    """The fixed point of a layer (Bai et al. 2019); the backward pass solves the linear system of the implicit rule."""

    def __init__(self, channels: int, classes: int, width: int = 48, rounds: int = 40) -> None:
        super().__init__()
        self.rounds, self.body, self.enter = rounds, body(channels), nn.Linear(384, width)
        self.again, self.head = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the fixed point."""
        drive = self.enter(self.body(x))
        w = 0.7 * self.again.weight / self.again.weight.norm()
        with torch.no_grad():
            h = torch.zeros_like(drive)
            for _ in range(self.rounds):
                h = torch.tanh(drive + h @ w.T)
        h = torch.tanh(drive + h @ w.T)
        if h.requires_grad:
            slope = 1 - h.detach().square()
            system = torch.eye(w.shape[0]).to(h) - slope[:, :, None] * w.detach()
            h.register_hook(lambda g: torch.linalg.solve(system.transpose(1, 2), g))  # type: ignore[no-untyped-call]
        logits: Tensor = self.head(h)
        return logits


class Automaton(nn.Module):
    """Cells that change by one local rule, eight times (Mordvintsev et al. 2020)."""

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.enter = nn.Conv2d(channels, width, 4, 2, 1)
        self.rule = nn.Sequential(nn.Conv2d(width, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, width, 1))
        self.leave = head(classes, nn.Identity(), values=16 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the last state."""
        h = self.enter(x)
        for _ in range(8):
            h = h + 0.3 * self.rule(h)
        logits: Tensor = self.leave(h)
        return logits


class Morphology(nn.Module):
    """Maxima of sums in place of sums of products (dilations)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.shifts = nn.Parameter(0.3 * torch.randn(after, before * 9))

    def forward(self, h: Tensor) -> Tensor:
        """Return the largest sum of each filter."""
        rows, columns = (-(-side // self.stride) for side in h.shape[2:])
        patches = F.unfold(h, 3, padding=1, stride=self.stride)
        largest = torch.stack([(patches + shift[:, None]).amax(1) for shift in self.shifts], 1)
        return largest.view(len(h), -1, rows, columns)


class Distances(nn.Module):
    """Filters that respond by minus the sum of absolute differences (Chen et al. 2020)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.filters = nn.Parameter(0.5 * torch.randn(after, before * 9))
        self.norm = nn.BatchNorm2d(after)

    def forward(self, h: Tensor) -> Tensor:
        """Return the normalised responses at every second place."""
        rows, columns = (-(-side // 2) for side in h.shape[2:])
        patches = F.unfold(h, 3, padding=1, stride=2)
        responses = torch.stack([-(patches - filters[:, None]).abs().sum(1) for filters in self.filters], 1)
        maps: Tensor = self.norm(responses.view(len(h), -1, rows, columns))
        return maps


class Routed(nn.Module):
    """Each image goes to its best two experts, weighed by the router (Shazeer et al. 2017); all experts are good."""

    def __init__(self, channels: int, classes: int, experts: int = 4) -> None:
        super().__init__()
        self.body, self.router = body(channels), nn.Linear(384, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(384, 32), nn.ReLU(), nn.Linear(32, classes)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighed logits of two experts."""
        h = self.body(x)
        values, chosen = self.router(h).topk(2, 1)
        answers = torch.stack([expert(h) for expert in self.experts], 1)
        two = answers.gather(1, chosen[..., None].expand(-1, -1, answers.shape[2]))
        weighed: Tensor = (values.softmax(1)[..., None] * two).sum(1)
        return weighed


class Coupled(nn.Module):
    """Blocks that can be inverted: each half is changed by a function of the other (Gomez et al. 2017)."""

    def __init__(self, channels: int, classes: int, blocks: int = 3, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv2d(channels, 2 * width, 4, 2, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1))
            for _ in range(2 * blocks)
        )
        self.leave = head(classes, nn.Identity(), values=32 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        first, second = self.enter(x).chunk(2, 1)
        for block in self.blocks:
            first, second = second, first + 0.5 * block(second)
        logits: Tensor = self.leave(torch.cat((first, second), 1))
        return logits


class StateSpace(nn.Module):
    """A linear recurrence with learned decay reads columns from left to right (Gu et al. 2022)."""

    def __init__(self, values: int, classes: int, width: int = 48) -> None:
        super().__init__()
        self.enter, self.gate = nn.Linear(values, width), nn.Linear(values, width)
        self.decay = nn.Parameter(torch.linspace(-1, 4, width))
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the mean state."""
        columns = x.flatten(1, 2).transpose(1, 2)
        inputs = self.enter(columns) * torch.sigmoid(self.gate(columns))
        h, total = torch.zeros_like(inputs[:, 0]), torch.zeros_like(inputs[:, 0])
        for column in inputs.unbind(1):
            h = torch.sigmoid(self.decay) * h + column
            total = total + torch.tanh(h)
        logits: Tensor = self.leave(total / columns.shape[1])
        return logits


class Residues(nn.Module):
    """Differences of places to learned words, summed by soft membership (NetVLAD, Arandjelović et al. 2016)."""

    def __init__(self, channels: int, classes: int, words: int = 6, width: int = 16) -> None:
        super().__init__()
        self.local = nn.Sequential(nn.Conv2d(channels, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, width, 5, 2, 2))
        self.words = nn.Parameter(torch.randn(words, width))
        self.last = nn.Linear(words * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.local(x).flatten(2).transpose(1, 2)
        member = (h @ self.words.T).softmax(2)
        sums = member.transpose(1, 2) @ h - member.sum(1)[..., None] * self.words
        logits: Tensor = self.last(F.normalize(sums, dim=2).flatten(1) * 4)
        return logits


class Scattering(nn.Module):
    """Fixed waves, their sizes, means, and one dense layer (Bruna and Mallat 2013)."""

    def __init__(self, channels: int, classes: int, angles: int = 6) -> None:
        super().__init__()
        place = torch.arange(7.0) - 3
        down, across = torch.meshgrid(place, place, indexing="ij")
        window = torch.exp(-(down.square() + across.square()) / 8)
        waves = []
        for angle in torch.arange(angles) * torch.pi / angles:
            for speed in (0.8, 1.8):
                phase = speed * (down * angle.cos() + across * angle.sin())
                waves += [window * phase.cos(), window * phase.sin()]
        filters = torch.stack(waves)
        self.register_buffer("filters", (filters - filters.mean((1, 2), keepdim=True))[:, None])
        self.filters: Tensor
        self.last = head(classes, nn.BatchNorm2d(2 * angles * channels), values=32 * angles * channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        maps = F.conv2d(x.flatten(0, 1)[:, None], self.filters, stride=2, padding=3)
        sizes = (maps[:, ::2].square() + maps[:, 1::2].square() + 1e-4).sqrt()
        logits: Tensor = self.last(sizes.view(len(x), -1, *sizes.shape[2:]))
        return logits


class OrderedPooling(nn.Module):
    """Sorts the values of each channel over all places and weighs them by rank."""

    def __init__(self, channels: int, classes: int, places: int, width: int = 24) -> None:
        super().__init__()
        self.local = nn.Sequential(nn.Conv2d(channels, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1))
        self.ranks = nn.Parameter(torch.randn(4, places) / places**0.5)
        self.last = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        ordered = self.local(x).flatten(2).sort(2).values
        logits: Tensor = self.last((ordered @ self.ranks.T).flatten(1))
        return logits


class TableActivation(nn.Module):
    """A table of a function with straight lines between its entries."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the interpolated values of h times a sigmoid."""
        ends = torch.linspace(-4, 4, 17).to(h)
        values = ends * torch.sigmoid(2 * ends)
        low = torch.bucketize(h.detach().clamp(-3.999, 3.999), ends).clamp(1, 16) - 1
        slope = (values[low + 1] - values[low]) / 0.5
        return values[low] + slope * (h - ends[low])


class FixedMasks(nn.Module):
    """The mean of the same network under four fixed masks of its features (Durasov et al. 2021)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.register_buffer("masks", (torch.rand(4, 384, generator=draw) < 0.6).float())
        self.masks: Tensor
        self.body, self.last = body(channels), nn.Sequential(nn.Linear(384, 48), nn.ReLU(), nn.Linear(48, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean log-probabilities."""
        h = self.body(x)
        answers: list[Any] = [self.last(h * mask) for mask in self.masks]
        return torch.stack(answers).log_softmax(2).mean(0)
