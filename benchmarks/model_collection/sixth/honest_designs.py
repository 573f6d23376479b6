"""Further networks of unusual design for the honest models: structured weights, answers, and fixed transformations."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.sixth.honest_parts import filters, read_out


def trunk(channels: int, width: int = 8) -> nn.Module:
    """Three convolutions that end in 32 * width values."""
    layers = (filters(channels, width), filters(width, 2 * width, 2), filters(2 * width, 2 * width, 2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten())


class Unshared(nn.Module):
    """Filters of their own at each place (locally connected)."""

    def __init__(self, channels: int, side: int, after: int, size: int = 4) -> None:
        super().__init__()
        self.size, places = size, (side // size) ** 2
        self.weight = nn.Parameter(torch.randn(places, after, channels * size**2) / (size * channels**0.5))

    def forward(self, h: Tensor) -> Tensor:
        """Return the flat responses of all places."""
        patches = F.unfold(h, self.size, stride=self.size)
        return torch.einsum("bvp,pav->bap", patches - 0.3, self.weight).flatten(1)


class TwoLevels(nn.Module):
    """Log-probabilities of groups plus those of the members of each group."""

    def __init__(self, channels: int, groups: int, members: int) -> None:
        super().__init__()
        self.trunk, self.groups, self.members = trunk(channels), groups, members
        self.group, self.member = nn.Linear(256, groups), nn.Linear(256, groups * members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums."""
        h = self.trunk(x)
        member = self.member(h).view(len(x), self.groups, self.members).log_softmax(2)
        total: Tensor = (self.group(h).log_softmax(1)[:, :, None] + member).flatten(1)
        return total


class Continued(nn.Module):
    """Asks for one threshold after another whether the class is higher (continuation ratios)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-probabilities; the body has one output less than there are classes."""
        z = self.body(x)
        zero = torch.zeros_like(z[:, :1])
        passed = torch.cat((zero, F.logsigmoid(z).cumsum(1)), 1)
        return passed + torch.cat((F.logsigmoid(-z), zero), 1)


class Evidence(nn.Module):
    """The logarithm of the mean of a Dirichlet distribution (Sensoy et al. 2018)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-probabilities."""
        alpha = 1 + F.softplus(self.body(x))
        return alpha.log() - alpha.sum(1, keepdim=True).log()


class SeveralInputs(nn.Module):
    """Three inputs and three answers in one network; in use all inputs are the same image (Havasi et al. 2021)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.classes, self.body = classes, nn.Sequential(trunk(3 * channels, 12), nn.Linear(384, 3 * classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean log-probabilities."""
        answers: Tensor = self.body(x.repeat(1, 3, 1, 1)).view(len(x), 3, self.classes)
        return answers.log_softmax(2).mean(1)


class ScoredPairs(nn.Module):
    """Scores a pair of image and class: the class changes the scale and shift of the features (Perez et al. 2018)."""

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.first = filters(channels, width, 2)
        self.scale, self.shift = nn.Parameter(torch.randn(classes, width)), nn.Parameter(torch.randn(classes, width))
        self.rest = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.SiLU(), read_out(1, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return one score per class."""
        h = self.first(x)
        each = h[:, None] * self.scale[..., None, None] + self.shift[..., None, None]
        scores: Tensor = self.rest(each.flatten(0, 1)).view(len(x), -1)
        return scores


class CosineBlocks(nn.Module):
    """The cosine coefficients of blocks of 8 x 8 pixels become channels, as in JPEG but without rounding."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        place = torch.arange(8.0)
        basis = torch.cos(math.pi * (2 * place[:, None] + 1) * place / 16) * (place > 0).float().add(1).div(8).sqrt()
        blocks = torch.einsum("au,bv->uvab", basis, basis).reshape(64, 1, 8, 8)
        self.register_buffer("blocks", blocks.repeat(channels, 1, 1, 1))
        self.blocks: Tensor
        self.rest = nn.Sequential(filters(64 * channels, 48, size=1), filters(48, 24), read_out(classes, 24))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.rest(F.conv2d(x - 0.5, self.blocks, stride=4, groups=x.shape[1]))
        return logits


class PolarView(nn.Module):
    """Samples the image on circles around its middle, wider apart further out."""

    def __init__(self, net: nn.Module, rings: int = 16, angles: int = 32) -> None:
        super().__init__()
        radius = torch.logspace(math.log10(0.08), 0, rings)[:, None]
        turn = torch.arange(angles) * 2 * math.pi / angles
        self.register_buffer("grid", torch.stack((radius * turn.cos(), radius * turn.sin()), 2))
        self.grid: Tensor
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the circles."""
        grid = self.grid.to(x).expand(len(x), -1, -1, -1)
        logits: Tensor = self.net(F.grid_sample(x, grid, align_corners=False, padding_mode="border"))
        return logits
