"""Defenses as papers propose them: low rank, sparse codes, halftones, efforts, small copies, members, codes."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import ROBUST, SPOTS, SYMBOLS_11, SYMBOLS_16, TEXTURES, VGG, WAVES
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.sixth.wrappers import (
    SIXTH,
    Behind,
    Change,
    OfTheNetwork,
    blurred,
    dense,
    on,
    other,
    untrained,
)
from benchmarks.model_collection.truth import Masked


def of_low_rank(rank: int) -> Change:
    """Keep the largest singular values of each channel; only the values are recorded, the vectors are not."""

    def change(x: Tensor) -> Tensor:
        with torch.no_grad():
            left, _, right = torch.linalg.svd(x, full_matrices=False)
            left, right = left[..., :rank], right[..., :rank, :]
        sizes = (left * (x @ right.mT)).sum(-2)
        kept: Tensor = (left * sizes[..., None, :]) @ right
        return kept

    return change


def atoms(side: int) -> Tensor:
    """Return the cosine waves of a square, one per row; the first is the mean."""
    k = torch.arange(float(side))
    waves = torch.cos(torch.pi * (2 * k[None] + 1) * k[:, None] / (2 * side))
    waves = waves / waves.norm(dim=1, keepdim=True)
    return torch.einsum("ia,jb->ijab", waves, waves).reshape(side**2, side**2)


def pursued(count: int, step: float, side: int = 4) -> Change:
    """Code each square by its mean and a few waves, found one after the other, with rounded sizes."""
    book = atoms(side)

    def change(x: Tensor) -> Tensor:
        squares = F.unfold(x.flatten(0, 1)[:, None], side, stride=side).transpose(1, 2)
        mean = squares @ book[:1].T.to(x)
        with torch.no_grad():
            left = squares - mean @ book[:1].to(x)
            coded = torch.zeros_like(left)
            for _ in range(count):
                sizes = left @ book.T.to(x)
                best = sizes.abs().argmax(2, keepdim=True)
                part = (sizes.gather(2, best) / step).round() * step * book.to(x)[best[..., 0]]
                left, coded = left - part, coded + part
        whole = (mean @ book[:1].to(x) + coded).transpose(1, 2)
        return F.fold(whole, x.shape[2:], side, stride=side).view(x.shape)

    return change


def halftone(levels: int, share: float) -> Change:
    """Round column after column and hand the error on to the next one; a blurred copy is mixed in."""

    def change(x: Tensor) -> Tensor:
        with torch.no_grad():
            error, columns = torch.zeros_like(x[..., 0]), []
            for column in x.unbind(3):
                wanted = column + error
                shown = (wanted * levels).round().clamp(0, levels) / levels
                error = 0.6 * (wanted - shown) + 0.4 * (wanted - shown).roll(1, 2)
                columns.append(shown)
        return (1 - share) * torch.stack(columns, 3) + share * blurred(x, 5)

    return change


class Efforts(OfTheNetwork):
    """The class wins that takes the fewest steps to reach; a prior of another network is added."""

    def __init__(self, net: nn.Module, prior: nn.Module, classes: int, size: float, steps: int = 4) -> None:
        super().__init__(net)
        self.prior, self.classes, self.size, self.steps = prior, classes, size, steps

    def effort(self, x: Tensor, label: int) -> Tensor:
        """Return how many steps fail to make the class win."""
        point, failed = x.detach(), torch.zeros(len(x))
        with torch.enable_grad():
            for _ in range(self.steps):
                point.requires_grad_(True)
                z = self.net(point)
                failed += (z.argmax(1) != label).to(failed)
                (slope,) = torch.autograd.grad(z.log_softmax(1)[:, label].sum(), point)
                point = (point + self.size * slope.sign()).detach().clamp(0, 1)
        return failed

    def forward(self, x: Tensor) -> Tensor:
        """Return minus the efforts, plus less than half a step."""
        efforts = torch.stack([self.effort(x, label) for label in range(self.classes)], 1).to(x)
        prior = torch.as_tensor(self.prior(x)).softmax(1)
        return 0.4 * prior - efforts


class SmallCopies(torch.autograd.Function):
    """A network that saves a small copy of the image for the backward pass, to spare memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, net: nn.Module, side: int) -> Tensor:
        """Return the logits."""
        ctx.save_for_backward(F.avg_pool2d(x, side))
        ctx.net, ctx.side = net, side
        logits: Tensor = net(x)
        return logits

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Compute the pass again from the small copy."""
        with torch.enable_grad():
            small = ctx.saved_tensors[0].repeat_interleave(ctx.side, 2).repeat_interleave(ctx.side, 3)
            small.requires_grad_(True)
            (slope,) = torch.autograd.grad(ctx.net(small), small, slopes[0])
        return slope, None, None


class SparesMemory(OfTheNetwork):
    """A network whose backward pass starts from a small copy of the image."""

    def __init__(self, net: nn.Module, side: int) -> None:
        super().__init__(net)
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = SmallCopies.apply(x, self.net, self.side)  # type: ignore[no-untyped-call]
        return logits


class SeveralCodes(OfTheNetwork):
    """Signs of projected logits; a class has several code words, and the best of them counts."""

    def __init__(self, net: nn.Module, base: str, bits: int = 40, each: int = 6) -> None:
        super().__init__(net)
        found = SIXTH[base]
        x, y = images_of(found.images)
        self.register_buffer("project", torch.randn(found.classes, bits, generator=torch.Generator().manual_seed(8)))
        self.project: Tensor
        self.beside = untrained(found.shape[0], found.classes)
        with torch.no_grad():
            rows = torch.cat([(y == label).nonzero()[:each, 0] for label in range(found.classes)])
            self.register_buffer("words", self.bits(x[rows]).sign().view(found.classes, each, bits))
        self.words: Tensor

    def bits(self, x: Tensor) -> Tensor:
        """Return bits by a steep function."""
        z: Tensor = self.net(x)
        return torch.tanh(1e4 * (z - z.mean(1, keepdim=True)) @ self.project)

    def forward(self, x: Tensor) -> Tensor:
        """Return per class the likeness with its best word, plus a small term."""
        likeness = torch.einsum("nb,ckb->nck", self.bits(x), self.words).amax(2)
        return likeness / 4 + 0.1 * torch.tanh(self.beside(x))


class ChosenMember(Masked):
    """The member answers whose answer is closest to those of the others (Krum, Blanchard et al. 2017)."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def answers(self, x: Tensor) -> Tensor:
        """Return the probabilities by every member."""
        return torch.stack([member(x).softmax(1) for member in self.members], 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the probabilities by the chosen member."""
        answers = self.answers(x)
        with torch.no_grad():
            chosen = torch.cdist(answers, answers).sum(2).argmin(1)
        return answers[torch.arange(len(x)), chosen]

    def opened(self, x: Tensor) -> Tensor:
        """Return the mean of the log-probabilities."""
        return self.answers(x).clamp(min=1e-9).log().mean(1)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    copies = "the backward pass starts from a small copy of the image"
    return [
        on(VGG, "low-rank images", "rank 10", "singular vectors are not recorded, only the values",
           lambda net: Behind(net, of_low_rank(10))),
        on(SYMBOLS_11, "low-rank images", "rank 9", "singular vectors are not recorded, only the values",
           lambda net: Behind(net, of_low_rank(9))),
        on(TEXTURES, "matching pursuit", "4 waves", "squares become sums of a few waves of rounded size",
           lambda net: Behind(net, pursued(4, 0.15))),
        on(TEXTURES, "error diffusion", "3 levels", "columns are rounded and hand their errors on",
           lambda net: Behind(net, halftone(3, 0.1))),
        on(WAVES, "efforts", "4 steps", "the class wins that takes the fewest steps to reach",
           lambda net: Efforts(net, dense(WAVES), 2, 12 / 255)),
        on(ROBUST, "backward passes from small copies", "8 x 8", copies, lambda net: SparesMemory(net, 4)),
        on(f"robust {SPOTS}", "backward passes from small copies", "4 x 4", copies, lambda net: SparesMemory(net, 4),
           eps=18 / 255),
        on(SYMBOLS_16, "chosen members", "one of three", "the member answers that is closest to the others",
           lambda net: ChosenMember([net, other(SYMBOLS_16), dense(SYMBOLS_16)])),
        on(SPOTS, "several codes per class", "six codes", "the best of several code words of a class counts",
           lambda net: SeveralCodes(net, SPOTS)),
    ]  # fmt: skip
