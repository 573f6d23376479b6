"""Honest small networks whose training is what is special about them; nothing is hidden."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import convolutions, perceptron
from benchmarks.model_collection.ninth.b_training import BATCH, Lesson, one, step


def free(net: nn.Module, x: Tensor, y: Tensor, eps: float = 8 / 255, replays: int = 4) -> None:
    """Train on each batch several times; the slope of each step also moves the attack (Shafahi et al. 2019)."""
    optimiser = torch.optim.AdamW(net.parameters(), 3e-3)
    for _ in range(100):
        rows = torch.randint(len(x), (BATCH,))
        delta = eps * (2 * torch.rand_like(x[rows]) - 1)
        for _ in range(replays):
            delta.requires_grad_(True)
            step(optimiser, F.cross_entropy(net((x[rows] + delta).clamp(0, 1)), y[rows]))
            assert delta.grad is not None
            delta = (delta + eps / 2 * delta.grad.sign()).clamp(-eps, eps).detach()


def misclassified_more(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the loss of attacked images, and a distance that weighs more for unsure images (Wang et al. 2020)."""
    clean, moved = net(x).softmax(1), net(attacked).softmax(1)
    wrong = moved.scatter(1, y[:, None], 0.0).amax(1)
    boosted = F.nll_loss((moved + 1e-6).log(), y) - (1 - wrong + 1e-6).log().mean()
    apart = (clean * ((clean + 1e-6) / (moved + 1e-6)).log()).sum(1)
    total: Tensor = boosted + 2 * (apart * (1 - clean.gather(1, y[:, None])[:, 0])).mean()
    return total


def hostile_weights(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the loss of attacked images at weights that are moved up its slope (Wu et al. 2020)."""
    weights = {name: weight for name, weight in net.named_parameters() if weight.dim() > 1}
    slopes = torch.autograd.grad(F.cross_entropy(net(attacked), y), list(weights.values()))
    moved = {
        name: weight + 0.01 * weight.detach().norm() * slope / (slope.norm() + 1e-9)
        for (name, weight), slope in zip(weights.items(), slopes, strict=True)
    }
    return F.cross_entropy(functional_call(net, moved, (attacked,)), y)


def by_length(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the loss of images after three steps within a ball of the Euclidean length."""
    delta = torch.zeros_like(x)
    for _ in range(3):
        delta.requires_grad_(True)
        (slope,) = torch.autograd.grad(F.cross_entropy(net(x + delta), y), delta)
        delta = delta + 0.4 * F.normalize(slope.flatten(1), dim=1).view_as(x)
        delta = (delta * (0.8 / delta.flatten(1).norm(dim=1).clamp(min=0.8)).view(-1, 1, 1, 1)).detach()
    return F.cross_entropy(net((x + delta).clamp(0, 1)), y)


def pasted(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the loss of images with a rectangle of another image, labels shared by area (Yun et al. 2019)."""
    share, (down, across), order = float(torch.rand(())) ** 0.5, x.shape[2:], torch.randperm(len(x))
    high, wide = round(down * share * 0.8), round(across * share * 0.8)
    top, left = int(torch.randint(down - high + 1, ())), int(torch.randint(across - wide + 1, ()))
    mixed = x.clone()
    mixed[:, :, top : top + high, left : left + wide] = x[order, :, top : top + high, left : left + wide]
    area, logits = high * wide / (down * across), net(mixed)
    total: Tensor = (1 - area) * F.cross_entropy(logits, y) + area * F.cross_entropy(logits, y[order])
    return total


def agreeing(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the loss and how much the answers to two random changes of an image differ (Hendrycks et al. 2020)."""

    def changed() -> Tensor:
        move = tuple(int(v) for v in torch.randint(-1, 2, (2,)))
        light = 0.9 + 0.2 * torch.rand(len(x), 1, 1, 1)
        return (light * x.roll(move, (2, 3)) + 0.1 * torch.randn_like(x)).clamp(0, 1)

    logits = net(torch.cat((x, changed(), changed())))
    parts = logits.softmax(1).chunk(3)
    mean = torch.stack(parts).mean(0).clamp(1e-6, 1).log()
    apart = torch.stack([F.kl_div(mean, part, reduction="batchmean") for part in parts]).mean()
    return F.cross_entropy(logits[: len(x)], y) + 6 * apart


def margins_by_rarity(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the loss where later classes are rarer and must win by more (Cao et al. 2019)."""
    share = torch.logspace(0, -1, int(y.max()) + 1)
    kept = torch.rand(len(y)) < share[y]
    logits, labels = net(attacked[kept]), y[kept]
    margins = torch.zeros_like(logits).scatter(1, labels[:, None], (0.5 * share[labels] ** -0.25)[:, None])
    return F.cross_entropy(4 * (logits - margins), labels)


class Kept(nn.Module):
    """Weights of which most are zero."""

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.register_buffer("kept", kept)
        self.kept: Tensor

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weights that are kept."""
        return weight * self.kept


def pruned(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train, set the smallest 80 % of each layer to zero, and train again without them (Han et al. 2015)."""
    Lesson(150, 4, 1)(net, x, y)
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers:
        kept = (layer.weight.abs() > layer.weight.abs().flatten().quantile(0.8)).float()
        parametrize.register_parametrization(layer, "weight", Kept(kept))
    Lesson(100, 4, 1, 3e-3)(net, x, y)
    for layer in layers:
        parametrize.remove_parametrizations(layer, "weight")


class Sum(nn.Module):
    """The sum of the members' logits."""

    def __init__(self, *members: nn.Module) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return torch.stack([member(x) for member in self.members]).sum(0)


def boosted(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train one member after another, each on what those before left wrong (Friedman 2001)."""
    assert isinstance(net, Sum)
    members = list(net.members)
    for number, member in enumerate(members):
        before = Sum(*members[: number + 1])
        before.train()
        for earlier in members[:number]:
            earlier.eval().requires_grad_(False)
        member.requires_grad_(True)
        Lesson(70, 8, 2)(before, x, y)
    net.requires_grad_(True)


def soup(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train on, three times apart from the same start, and take the mean weights (Wortsman et al. 2022)."""
    Lesson(120, 8, 2)(net, x, y)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    ends = []
    for teach in (Lesson(40, 8, 2, 2e-3), Lesson(40, 10, 2, 1e-3), Lesson(40, 6, 2, 2e-3, 0.1)):
        net.load_state_dict(start)
        teach(net, x, y)
        ends.append({name: value.clone() for name, value in net.state_dict().items()})
    net.load_state_dict({name: torch.stack([end[name].double() for end in ends]).mean(0) for name in start})


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [one(*row) for row in LESSONS]


LESSONS: Final[list[tuple[Any, ...]]] = [
    ("free attacks in training", "spots", 11, lambda: convolutions(5, 20, nn.SiLU), free,
        "100 batches of spots, each four times, against 8/255"),
    ("unsure images weigh more", "symbols 11", 25, lambda: convolutions(1, 11), Lesson(150, 14, 2,
        loss=misclassified_more)),
    ("hostile weights", "cifar10 six classes", 4, lambda: convolutions(3, 6, nn.GELU), Lesson(250, 2, 1,
        loss=hostile_weights)),
    ("attacks by another norm", "symbols 16", 16, lambda: convolutions(1, 16, nn.Softplus), Lesson(250,
        loss=by_length)),
    ("pasted patches", "cifar10 five groups", 9, lambda: convolutions(3, 5, nn.Mish), Lesson(250,
        loss=pasted)),
    ("agreeing changes", "waves", 20, lambda: convolutions(1, 2, nn.SiLU), Lesson(120, loss=agreeing)),
    ("margins by rarity", "spots", 9, lambda: convolutions(5, 20), Lesson(250, loss=margins_by_rarity)),
    ("pruned and trained again", "cifar10 animals", 11, lambda: convolutions(3, 2, width=12), pruned,
        "trained against 4/255, 80 % of the weights removed, trained again"),
    ("members on what is left", "textures", 20, lambda: Sum(*(convolutions(3, 4, nn.ELU, width=5) for _ in range(3))),
        boosted, "three members trained one after another against 8/255"),
    ("mean of three trainings", "symbols 10", 17, lambda: convolutions(1, 10, nn.ReLU, lambda n: nn.GroupNorm(4, n)),
        soup, "the mean of three continued trainings against 6/255 to 10/255"),
    ("heavy decay", "symbols 16", 10, lambda: perceptron(784, 16, nn.GELU), Lesson(250, 0, 0, 0.1, 0.01, "sgd")),
]  # fmt: skip
