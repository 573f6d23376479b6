"""Models whose nearest adversarial point is known in closed form, and the few lines that set an attack on them.

The distances are computed in NumPy at float64 and share no code with assay. Which are exact:

- untargeted, any number of classes: the label changes as soon as one other class passes it, so the nearest
  adversarial point is the nearest over all others;
- targeted, two living classes only: with three, the target must pass two others at once, which is another
  problem. `two_classes` may add dead classes (no weight, a hopeless bias), which never win and change nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from robustassay.attacks.attack import Attack
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.rng import Streams
from robustassay.target import GradientAccess, Ledger, LocalModel, TargetModel
from robustassay.threat import Ball, Goal, Norm, TargetRule, ThreatModel

Numbers = npt.NDArray[np.float64]

CPU = torch.device("cpu")
DEAD = -1e3


class Linear(nn.Module):
    """logits = weight @ x + bias, for images of any shape."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T + self.bias


class Constant(nn.Module):
    """Says class 0 whatever it sees, and has a gradient of exactly zero."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.arange(classes, 0, -1).float())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.bias + 0 * x.flatten(1).sum(1, keepdim=True)


class Spy(nn.Module):
    """Passes images on to a model and keeps a copy of every batch it was shown."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.seen: list[Tensor] = []
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().clone())
        logits: Tensor = self.module(x)
        return logits


def two_classes(values: int, seed: int = 0, margin: float = 1.0, dead: int = 0, kind: Any = torch.float32) -> Linear:
    """A random linear model that says class 0 at the grey image, by the given margin; dead classes never win."""
    draw = np.random.default_rng(seed)
    weight = np.zeros((2 + dead, values))
    weight[:2] = draw.normal(size=(2, values)) + 0.3 * np.sign(draw.normal(size=(2, values)))
    bias = np.full(2 + dead, DEAD)
    bias[0], bias[1] = 0.0, (weight[0] - weight[1]).sum() / 2 - margin
    return Linear(torch.tensor(weight, dtype=kind), torch.tensor(bias, dtype=kind))


# ---------------------------------------------------------------- the nearest adversarial point


def nearest(norm: str, slope: Numbers, need: float, room: Numbers) -> float:
    """Size of the smallest move, each value by 0 to its room, that gains `slope @ move >= need`; slope >= 0."""
    if need <= 0:
        return 0.0
    useful = (slope > 0) & (room > 0)
    slope, room = slope[useful], room[useful]
    if (slope * room).sum() < need:
        return np.inf
    if norm == "Linf":  # all values move together until each meets its wall
        return _fill(slope, slope * room, need)
    if norm == "L2":  # stationarity: each value moves in proportion to its slope until it meets its wall
        level = _fill(slope**2, slope * room, need)
        return float(np.linalg.norm(np.minimum(level * slope, room)))
    if norm == "L1":  # the steepest value first, up to its wall, then the next
        order = np.argsort(-slope)
        gained = np.concatenate(([0.0], np.cumsum((slope * room)[order])))
        last = int(np.searchsorted(gained, need)) - 1
        return float(room[order][:last].sum() + (need - gained[last]) / slope[order][last])
    if norm == "L0":  # the values that can gain most
        return float(np.searchsorted(np.cumsum(np.sort(slope * room)[::-1]), need) + 1)
    raise ValueError(norm)


def _fill(rate: Numbers, most: Numbers, need: float) -> float:
    """The level t at which values that each give min(t * rate, most) give `need` in all."""
    full_at = most / rate
    order = np.argsort(full_at)
    given, rates = 0.0, rate.sum()
    for i in order:
        if given + rates * full_at[i] >= need:
            break
        given, rates = given + most[i], rates - rate[i]
    return float((need - given) / rates)


def distances(model: Linear, x: Tensor, labels: Tensor, norm: str, box: bool = True) -> Numbers:
    """Distance from each image to the nearest one with another label."""
    return np.array(
        [
            min(_to_class(model, image, own, other, norm, box) for other in range(len(model.bias)) if other != own)
            for image, own in zip(x, labels.tolist(), strict=True)
        ]
    )


def targeted_distances(model: Linear, x: Tensor, targets: Tensor, norm: str, box: bool = True) -> Numbers:
    """Distance from each image to the nearest one labelled with its target; two living classes only."""
    living = (model.bias.detach() > DEAD).nonzero().squeeze(1).tolist()
    assert len(living) == 2, "exact for two living classes only"
    return np.array(
        [
            _to_class(model, image, sum(living) - target, target, norm, box)
            for image, target in zip(x, targets.tolist(), strict=True)
        ]
    )


def _to_class(model: Linear, image: Tensor, own: int, other: int, norm: str, box: bool) -> float:
    climb, need = _climb(model, image, own, other)
    flat = image.detach().double().flatten().numpy()
    room = np.where(climb > 0, 1 - flat, flat) if box else np.full(flat.shape, np.inf)
    return nearest(norm, np.abs(climb), need, room)


def _climb(model: Linear, image: Tensor, own: int, other: int) -> tuple[Numbers, float]:
    """The direction from one class to another, and how much the image must gain along it."""
    weight, bias = model.weight.detach().double().numpy(), model.bias.detach().double().numpy()
    climb: Numbers = weight[other] - weight[own]
    return climb, -float(climb @ image.detach().double().flatten().numpy() + bias[other] - bias[own])


def images(rows: int, shape: Sequence[int], seed: int = 0, low: float = 0.35, high: float = 0.65) -> Tensor:
    """Random images with every value between low and high."""
    return torch.tensor(np.random.default_rng(seed).uniform(low, high, (rows, *shape)), dtype=torch.float32)


def at_one_distance(model: Linear, x: Tensor, labels: Tensor, norm: str, free: Tensor) -> tuple[Tensor, float]:
    """Move the free values of images of class 0 towards class 1 until all images have one and the same distance."""
    wanted = 0.9 * float(distances(model, x, labels, norm).min())
    assert 0 < wanted < np.inf
    moved = []
    for image, label, may_move in zip(x.double(), labels, free, strict=True):
        climb, need = _climb(model, image, 0, 1)
        along = torch.from_numpy(climb).view(image.shape) * may_move
        along *= need / along.square().sum()  # all of it reaches the boundary

        def excess(t: float, image: Tensor = image, along: Tensor = along, label: Tensor = label) -> float:
            return float(distances(model, (image + t * along)[None], label[None], norm)[0] - wanted)

        moved.append((image + brentq(excess, 0.0, 1.0, xtol=1e-12) * along).float())
    together = torch.stack(moved)
    assert together.min() >= 0
    assert together.max() <= 1
    return together, wanted


# ---------------------------------------------------------------- setting an attack on them


def ignore_step(ledger: Ledger) -> None:
    """Do nothing at a step of an attack."""


def names(rows: int) -> list[str]:
    return [f"row-{row}" for row in range(rows)]


def run(
    module: nn.Module,
    attack: Attack[Any],
    norm: Norm,
    x: Tensor,
    labels: Tensor,
    *,
    target: TargetRule | None = None,
    ids: Sequence[str] | None = None,
    seed: int = 0,
    query_budget: int | None = None,
    batch_size: int = 32,
) -> tuple[pd.DataFrame, Tensor]:
    """Attack one wave; return its verified records and adversarial images."""
    network = open_target(module, x, batch_size)
    wave = Wave(list(ids or names(len(x))), x, labels)
    records, x_adv = run_wave(network, attack, ThreatModel(norm, target), wave, seed, query_budget, ignore_step)
    return records.to_pandas(), x_adv


def open_target(module: nn.Module, x: Tensor, batch_size: int = 32) -> TargetModel:
    kind = next(module.parameters()).dtype
    with torch.no_grad():
        classes = module(x[:1].to(kind)).shape[1]
    return LocalModel(module, classes, CPU, batch_size)


def open_ledger(
    norm: Norm, x: Tensor, goal: Goal, *, seeks_minimum: bool = False, query_budget: int | None = None
) -> Ledger:
    ball = Ball(norm, x, torch.full((len(x),), norm.eps))
    return Ledger(ball, goal, seeks_minimum, query_budget)


def open_access(
    kind: Callable[..., Any],
    module: nn.Module,
    ledger: Ledger,
    *,
    seed: int = 0,
    ids: Sequence[str] | None = None,
) -> Any:
    """Give the attacker's view of all rows of a ledger."""
    x = ledger.ball.centre
    rng = Streams.of(seed, list(ids or names(len(x))))
    return kind(open_target(module, x), ledger, rng, torch.arange(len(x)), ignore_step)


def last_iterate(module: nn.Module, attack: Attack[Any], norm: Norm, x: Tensor, goal: Goal, seed: int = 0) -> Tensor:
    """Run an attack by itself and return its last point; no row may reach the goal, or it would leave early."""
    ledger = open_ledger(norm, x, goal)
    last: Tensor = attack(open_access(GradientAccess, module, ledger, seed=seed), x)
    assert not ledger.claimed.any(), "a row left early: make the goal harder"
    assert len(last) == len(x)
    return last
