"""Networks of unusual design, all with true gradients."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.second.hard_networks import body
from benchmarks.model_collection.second.smooth_layers import Apply, head


class BagOfPatches(nn.Module):
    """The mean of the logits of overlapping patches (Brendel and Bethge 2019)."""

    def __init__(self, channels: int, classes: int, patch: int, stride: int) -> None:
        super().__init__()
        first = [nn.Conv2d(channels, 32, patch, stride), nn.BatchNorm2d(32), nn.ReLU()]
        self.local = nn.Sequential(*first, nn.Conv2d(32, 32, 1), nn.ReLU(), nn.Conv2d(32, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean over places."""
        means: Tensor = self.local(x).mean((2, 3))
        return means


class Capsules(nn.Module):
    """Classes are vectors; the logit is the length of the squashed vector (Sabour et al. 2017)."""

    def __init__(self, channels: int, classes: int, size: int = 6) -> None:
        super().__init__()
        self.classes, self.size = classes, size
        self.body, self.vectors = body(channels), nn.Linear(384, classes * size)

    def forward(self, x: Tensor) -> Tensor:
        """Return ten times the lengths."""
        vectors = self.vectors(self.body(x)).view(-1, self.classes, self.size)
        squares: Tensor = vectors.square().sum(2)
        return 10 * squares / (1 + squares)


class Flow(nn.Module):
    """Follows a learned differential equation by six Euler steps (Chen et al. 2018)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(channels, 12, 3, 2, 1)
        self.slope = nn.Sequential(nn.Conv2d(12, 12, 3, 1, 1), nn.Tanh(), nn.Conv2d(12, 12, 3, 1, 1))
        self.leave = head(classes, nn.Identity(), values=192)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits at the end."""
        h = self.enter(x)
        for _ in range(6):
            h = h + self.slope(h) / 6
        logits: Tensor = self.leave(h)
        return logits


class Coordinates(nn.Module):
    """Two further channels tell each pixel where it is (Liu et al. 2018)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        rows, columns = x.shape[2:]
        down = torch.linspace(-1, 1, rows).to(x)[:, None].expand(len(x), 1, rows, columns)
        across = torch.linspace(-1, 1, columns).to(x).expand(len(x), 1, rows, columns)
        logits: Tensor = self.net(torch.cat((x, down, across), 1))
        return logits


class Queries(nn.Module):
    """One learned query per class looks at all patches; there is one shared read-out."""

    def __init__(self, channels: int, classes: int, patch: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Sequential(
            nn.Conv2d(channels, width, patch, patch), nn.GELU(), nn.Conv2d(width, width, 3, 1, 1)
        )
        self.queries = nn.Parameter(torch.randn(classes, width) / width**0.5)
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.weights = nn.Parameter(torch.randn(classes, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.embed(x).flatten(2).transpose(1, 2)
        looks = torch.softmax(self.queries @ self.key(h).transpose(1, 2), -1)
        logits: Tensor = (looks @ self.value(h) * self.weights).sum(2)
        return logits


class Splines(nn.Module):
    """Sums of learned functions of single values, each a sum of bumps (Liu et al. 2024)."""

    def __init__(self, values: int, outputs: int, count: int = 5) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(-2, 2, count))
        self.centres: Tensor
        self.norm, self.mix = nn.LayerNorm(values), nn.Linear(values * count, outputs)

    def forward(self, h: Tensor) -> Tensor:
        """Return the sums."""
        bumps = torch.exp(-(self.norm(h)[..., None] - self.centres).square())
        sums: Tensor = self.mix(bumps.flatten(1))
        return sums


def two_sums(values: int, classes: int) -> nn.Module:
    """Two layers of sums of bumps."""
    return nn.Sequential(nn.Flatten(), Splines(values, 32), Splines(32, classes))


class Highway(nn.Module):
    """A layer that passes a learned share of its input on (Srivastava et al. 2015)."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.change, self.share = nn.Linear(values, values), nn.Linear(values, values)

    def forward(self, h: Tensor) -> Tensor:
        """Return the mixture."""
        share = torch.sigmoid(self.share(h) - 1)
        return share * torch.tanh(self.change(h)) + (1 - share) * h


class Exits(nn.Module):
    """The mean of the log-probabilities of an early and a late head."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, 12, 3, 1, 1), nn.BatchNorm2d(12), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU())
        self.early, self.late = head(classes, values=192), head(classes, values=384)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean."""
        h = self.first(x)
        mean: Tensor = (self.early(h).log_softmax(1) + self.late(self.second(h)).log_softmax(1)) / 2
        return mean


class OwnTemperature(nn.Module):
    """Logits times a learned positive scale of the image (Guo et al. 2017, with a scale per image)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body, self.logits, self.scale = body(channels), nn.Linear(384, classes), nn.Linear(384, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled logits."""
        h = self.body(x)
        scaled: Tensor = self.logits(h) * (0.2 + F.softplus(self.scale(h)))
        return scaled


class Cleaned(nn.Module):
    """A small autoencoder in front of a network, trained with it."""

    def __init__(self, channels: int, net: nn.Module) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(channels, 16, 4, 2, 1), nn.ReLU())
        self.up, self.net = nn.ConvTranspose2d(16, channels, 4, 2, 1), net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the cleaned image."""
        logits: Tensor = self.net(torch.sigmoid(self.up(self.down(x))))
        return logits


class FixedFilters(nn.Module):
    """Fixed random filters and one trained dense layer."""

    def __init__(self, channels: int, classes: int, count: int = 64) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.register_buffer("filters", torch.randn(count, channels, 5, 5, generator=draw) / (5 * channels**0.5))
        self.filters: Tensor
        self.head = head(classes, nn.BatchNorm2d(count), values=16 * count)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(F.softplus(4 * F.conv2d(x - 0.5, self.filters, stride=2)))
        return logits


class Halves(nn.Module):
    """The same layers read the left and the right half."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body, self.join = body(channels), nn.Sequential(nn.Linear(768, 64), nn.SiLU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        left, right = x.chunk(2, 3)
        logits: Tensor = self.join(torch.cat((self.body(left), self.body(right)), 1))
        return logits


class Pyramid(nn.Module):
    """Differences between an image and its blurred copies, each read by its own layers."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.bodies, self.join = nn.ModuleList(body(channels, 6) for _ in range(3)), nn.Linear(576, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        calm = F.avg_pool2d(x, 2)
        calmer = F.avg_pool2d(calm, 2)
        levels = (x - F.interpolate(calm, size=x.shape[2:]), calm - F.interpolate(calmer, size=calm.shape[2:]), calmer)
        logits: Tensor = self.join(torch.cat([part(level) for part, level in zip(self.bodies, levels, strict=True)], 1))
        return logits


def pixels_as_channels(channels: int, classes: int, side: int) -> nn.Module:
    """Squares of pixels become channels, then two dense mixtures per place."""
    mix = [nn.Conv2d(channels * side**2, 32, 1), nn.BatchNorm2d(32), nn.GELU(), nn.Conv2d(32, 32, 3, 1, 1), nn.GELU()]
    return head(classes, nn.PixelUnshuffle(side), *mix, values=512)


def as_sequence(channels: int, columns: int, classes: int) -> nn.Module:
    """Rows become channels of a sequence, read by one-dimensional filters."""
    filters = [nn.Conv1d(channels, 32, 5, 1, 2), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 32, 5, 2, 2), nn.SiLU()]
    return nn.Sequential(Apply(lambda x: x.flatten(1, 2)), *filters, nn.Flatten(), nn.Linear(16 * columns, classes))
