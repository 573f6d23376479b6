"""Networks of unusual design for the honest models: attention, graphs, sampling, symmetric and structured filters."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def read_out(classes: int, width: int) -> nn.Module:
    """A 4 x 4 grid of means and a dense layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, classes))


def filters(before: int, after: int, stride: int = 1, size: int = 3) -> nn.Module:
    """A convolution, its normalisation and a ReLU."""
    layer = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU())


class ClassToken(nn.Module):
    """A transformer of PyTorch's own layers whose answer is read from an additional token (Dosovitskiy et al. 2021)."""

    def __init__(self, channels: int, patch: int, patches: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.place = nn.Parameter(0.1 * torch.randn(1, patches + 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the token."""
        h = self.embed(x).flatten(2).transpose(1, 2)
        h = self.blocks(torch.cat((self.token.expand(len(x), -1, -1), h), 1) + self.place)
        logits: Tensor = self.last(h[:, 0])
        return logits


class UShape(nn.Module):
    """Down and up again with a connection at each size; every pixel gets logits (Ronneberger et al. 2015)."""

    def __init__(self, channels: int, classes: int, width: int = 8) -> None:
        super().__init__()
        self.fine, self.middle = filters(channels, width), filters(width, 2 * width, 2)
        self.coarse = filters(2 * width, 2 * width, 2)
        self.join = filters(4 * width, width)
        self.last = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean logits of all pixels."""
        fine = self.fine(x)
        middle = self.middle(fine)
        coarse = F.interpolate(self.coarse(middle), size=middle.shape[2:], mode="bilinear")
        h = F.interpolate(self.join(torch.cat((middle, coarse), 1)), size=fine.shape[2:], mode="bilinear")
        logits: Tensor = self.last(torch.cat((fine, h), 1)).mean((2, 3))
        return logits


class Fire(nn.Module):
    """Squeezes the channels, then widens them by small and large filters (Iandola et al. 2016)."""

    def __init__(self, before: int, narrow: int, after: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(before, narrow, 1)
        self.small, self.large = nn.Conv2d(narrow, after // 2, 1), nn.Conv2d(narrow, after // 2, 3, 1, 1)

    def forward(self, h: Tensor) -> Tensor:
        """Return both kinds of responses."""
        h = F.relu(self.squeeze(h))
        return F.relu(torch.cat((self.small(h), self.large(h)), 1))


class PatchGraph(nn.Module):
    """Patches are nodes; edges are grid neighbours, weighed by likeness (Kipf and Welling 2017)."""

    def __init__(self, channels: int, patch: int, side: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        place = torch.cartesian_prod(torch.arange(side), torch.arange(side)).float()
        self.register_buffer("near", torch.cdist(place, place, p=1) <= 2)
        self.near: Tensor
        self.place = nn.Parameter(0.1 * torch.randn(1, side * side, width))
        self.passes = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the mean node."""
        h = self.embed(x).flatten(2).transpose(1, 2) + self.place
        for step in self.passes:
            alike = (F.normalize(h, dim=2) @ F.normalize(h, dim=2).transpose(1, 2)).masked_fill(~self.near, -1e4)
            h = h + F.gelu(step(torch.cat((h, (2 * alike).softmax(2) @ h), 2)))
        logits: Tensor = self.last(h.mean(1))
        return logits


class FreeSampling(nn.Module):
    """Each place of the feature map is read a learned distance away (Dai et al. 2017)."""

    def __init__(self, channels: int, classes: int, width: int = 12) -> None:
        super().__init__()
        self.first, self.moves = filters(channels, width), nn.Conv2d(width, 2, 5, 1, 2)
        self.rest = nn.Sequential(filters(width, 2 * width, 2), read_out(classes, 2 * width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.first(x)
        same = torch.eye(2, 3).to(h).expand(len(h), 2, 3)
        grid = F.affine_grid(same, list(h.shape), align_corners=False)
        grid = grid + 0.2 * torch.tanh(self.moves(h)).permute(0, 2, 3, 1)
        logits: Tensor = self.rest(F.grid_sample(h, grid, padding_mode="reflection", align_corners=False))
        return logits


class FourTurns(nn.Module):
    """Each filter is used in four turns, and the largest response counts (Cohen and Welling 2016)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride, self.norm = stride, nn.BatchNorm2d(after)
        self.weight = nn.Parameter(torch.randn(after, before, 5, 5) / (5 * before**0.5))

    def forward(self, h: Tensor) -> Tensor:
        """Return the largest responses."""
        turned = [F.conv2d(h, self.weight.rot90(k, (2, 3)), stride=self.stride, padding=2) for k in range(4)]
        return F.relu(self.norm(torch.stack(turned).amax(0)))


class RootMean(nn.Module):
    """Divides by the root of the mean square and scales (Zhang and Sennrich 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, h: Tensor) -> Tensor:
        """Return the normalised values."""
        return self.scale * h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5)


class TurnedAttention(nn.Module):
    """Attention over columns with queries and keys turned by place, and gated dense layers (Touvron et al. 2023)."""

    def __init__(self, values: int, places: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed, self.mix = nn.Linear(values, width), nn.Linear(width, 3 * width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down, self.norms = nn.Linear(2 * width, width), nn.ModuleList(RootMean(width) for _ in range(3))
        angles = torch.arange(places)[:, None] * 10.0 ** -torch.linspace(0, 2, width // 2)
        self.register_buffer("angles", torch.view_as_real(torch.polar(torch.ones_like(angles), angles)))
        self.angles: Tensor
        self.last = nn.Linear(width, classes)

    def turned(self, h: Tensor) -> Tensor:
        """Multiply pairs of values by complex numbers of size 1."""
        pairs = torch.view_as_complex(h.view(*h.shape[:-1], -1, 2)) * torch.view_as_complex(self.angles)
        return torch.view_as_real(pairs).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the mean column."""
        h = self.embed(x.flatten(1, 2).transpose(1, 2) - 0.5)
        query, key, value = self.mix(self.norms[0](h)).chunk(3, -1)
        h = h + F.scaled_dot_product_attention(self.turned(query), self.turned(key), value)
        g = self.norms[1](h)
        h = h + self.down(F.silu(self.gate(g)) * self.up(g))
        logits: Tensor = self.last(self.norms[2](h).mean(1))
        return logits
