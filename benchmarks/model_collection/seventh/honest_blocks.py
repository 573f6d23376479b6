"""Blocks and networks of further designs for the honest models."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def read_out(classes: int, width: int) -> nn.Module:
    """A 4 x 4 grid of means and a dense layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, classes))


class LargeDepthwise(nn.Module):
    """Large depthwise filters, a norm over channels, and a wide dense pair (ConvNeXt, Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, 1, 3, groups=width), nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, h: Tensor) -> Tensor:
        """Return the features plus a scaled change."""
        change: Tensor = self.scale * self.dense(self.norm(self.depthwise(h).permute(0, 2, 3, 1)))
        return h + change.permute(0, 3, 1, 2)


class Windows(nn.Module):
    """Attention within square windows, which every second layer shifts by half (Swin, Liu et al. 2021)."""

    def __init__(self, channels: int, patch: int, classes: int, window: int = 4, width: int = 24) -> None:
        super().__init__()
        self.window, self.embed = window, nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(0.1 * torch.randn(1, window**2, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.dense = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(2)
        )
        self.last = read_out(classes, width)

    def attend(self, h: Tensor, number: int) -> Tensor:
        """Mix the places of each window; `h` ends in channels."""
        count, down, across, width = h.shape
        size = self.window
        parts = h.view(count, down // size, size, across // size, size, width).transpose(2, 3)
        flat = self.norms[number](parts.reshape(-1, size**2, width)) + self.place
        query, key, value = self.mix[number](flat).chunk(3, -1)
        mixed = torch.softmax(query @ key.transpose(1, 2) / width**0.5, -1) @ value
        back = mixed.view(count, down // size, across // size, size, size, width).transpose(2, 3)
        mixed_back: Tensor = h + back.reshape(h.shape)
        return mixed_back

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.embed(x - 0.5).permute(0, 2, 3, 1)
        for number in range(2):
            shift = number * self.window // 2
            h = self.attend(h.roll((-shift, -shift), (1, 2)), number).roll((shift, shift), (1, 2))
            h = h + self.dense[number](self.norms[2 + number](h))
        logits: Tensor = self.last(h.permute(0, 3, 1, 2))
        return logits


class FiltersOfPlaces(nn.Module):
    """Every place makes the filter that is applied to it, from its own features (involution, Li et al. 2021)."""

    def __init__(self, width: int, groups: int = 4, size: int = 3) -> None:
        super().__init__()
        self.groups, self.size = groups, size
        self.make = nn.Sequential(nn.Conv2d(width, width, 1), nn.SiLU(), nn.Conv2d(width, groups * size**2, 1))

    def forward(self, h: Tensor) -> Tensor:
        """Return the filtered features."""
        count, width, down, across = h.shape
        filters = self.make(h).view(count, self.groups, 1, self.size**2, down, across)
        near = F.unfold(h, self.size, padding=self.size // 2)
        near = near.view(count, self.groups, width // self.groups, self.size**2, down, across)
        filtered: Tensor = (filters * near).sum(3).view(h.shape)
        return filtered


class LargestPlaces(nn.Module):
    """The mean of the few largest responses of each channel."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, h: Tensor) -> Tensor:
        """Return one value per channel."""
        return h.flatten(2).topk(self.count, dim=2).values.mean(2)


class SparseCode(nn.Module):
    """Four unrolled steps of sparse coding with learned matrices and soft thresholds (Gregor and LeCun 2010)."""

    def __init__(self, values: int, classes: int, code: int = 128) -> None:
        super().__init__()
        self.enter, self.again = nn.Linear(values, code, bias=False), nn.Linear(code, code, bias=False)
        self.threshold, self.last = nn.Parameter(torch.full((code,), 0.05)), nn.Linear(code, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the code."""
        given = self.enter(x.flatten(1) - 0.3)
        h = torch.zeros_like(given)
        for _ in range(4):
            raw = given + self.again(h)
            h = F.relu(raw - self.threshold) - F.relu(-raw - self.threshold)
        logits: Tensor = self.last(h)
        return logits


class RepeatedFilters(nn.Module):
    """One layer of filters looks at the image and at its own last answer, four times (Liang and Hu 2015)."""

    def __init__(self, channels: int, classes: int, width: int = 12) -> None:
        super().__init__()
        self.see, self.again = nn.Conv2d(channels, width, 3, 2, 1), nn.Conv2d(width, width, 3, 1, 1)
        self.norm, self.last = nn.GroupNorm(3, width), read_out(classes, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after the last look."""
        seen = self.see(x - 0.5)
        h = F.leaky_relu(seen, 0.1)
        for _ in range(4):
            h = F.leaky_relu(self.norm(seen + self.again(h)), 0.1)
        logits: Tensor = self.last(h)
        return logits


class Bent(torch.autograd.Function):
    """The SiLU with a backward pass of its own that keeps one tensor only, as libraries write it; it is exact."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, h: Tensor) -> Tensor:
        """Return h times its sigmoid."""
        ctx.save_for_backward(h)
        gate: Tensor = h.sigmoid()
        return h * gate

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *slopes: Tensor) -> Tensor:
        """Return the exact slope."""
        (h,) = ctx.saved_tensors  # type: ignore[attr-defined]
        gate: Tensor = h.sigmoid()
        slope: Tensor = slopes[0] * gate * (1 + h * (1 - gate))
        return slope


class OwnBackward(nn.Module):
    """The activation with its own backward pass."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the activated features."""
        bent: Tensor = Bent.apply(h)  # type: ignore[no-untyped-call]
        return bent


class Refined(nn.Module):
    """A code of the image that three recorded gradient steps fit better to the image, and a head on the code."""

    def __init__(self, values: int, classes: int, code: int = 48) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(values, code))
        self.decode = nn.Sequential(nn.Linear(code, 96), nn.Softplus(), nn.Linear(96, values))
        self.last = nn.Sequential(nn.Linear(code, 64), nn.Tanh(), nn.Linear(64, classes))

    def misfit(self, code: Tensor, x: Tensor) -> Tensor:
        """Return half the squared distance between the image and what the code says of it."""
        misfit: Tensor = 0.5 * (self.decode(code) - x).square().sum()
        return misfit

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        code = self.encode(x)
        for _ in range(3):
            code = code - 0.1 * torch.func.grad(self.misfit)(code, x.flatten(1))
        logits: Tensor = self.last(code)
        return logits


class Skipped(nn.Module):
    """Residual blocks that are left out at random in training, never in use (Huang et al. 2016)."""

    def __init__(self, channels: int, classes: int, width: int = 16, depth: int = 5) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(channels, width, 3, 2, 1), read_out(classes, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.GroupNorm(4, width), nn.ELU()) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.first(x - 0.5)
        for block in self.blocks:
            kept = (torch.rand(len(h), 1, 1, 1) < 0.7).to(h) / 0.7 if self.training else 1.0
            h = h + kept * block(h)
        logits: Tensor = self.last(h)
        return logits
