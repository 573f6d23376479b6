"""Zeroth-order optimisation."""

from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common import adam
from robustassay.attacks.common.gradient_estimate import BLOCK
from robustassay.attacks.common.patterns import PatternBasis, coarse
from robustassay.attacks.common.penalty_search import PenaltySearch
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, per_row

SOLVERS: Final = ("adam", "newton")

POOLS: Final = 8
"""Regions per side; the largest change in a region decides how often its values are chosen."""

FLOOR: Final = 0.1
"""The smallest probability of a value, as a part of the largest."""

SHORTEST: Final = 50
"""The fewest steps between two checks for an early stop."""


@final
@register("attack", "zoo")
@dataclass(frozen=True)
class ZOO(Attack[ScoreAccess]):
    """C&W's L2 loss, minimised by finite differences along single values (Chen et al. 2017, arXiv:1708.03999).

    A step queries both sides of `samples` values and the present point: 2 * samples + 1 queries. `solver` is adam or
    newton, both value by value. With `importance`, regions that changed most are chosen most often. Images larger than
    `side` are changed on a grid of that size, interpolated bilinearly; it never grows. As the authors do for MNIST,
    values are kept in the box by clipping, not by a tanh, which freezes those at 0 and 1.
    """

    info = AttackInfo(
        papers=("1708.03999",),
        formula="the loss of cw, with differences (L(x + h e_i) - L(x - h e_i)) / (2 h) along `samples` values i,\n"
        "and Adam, or Newton by second differences, value by value",
        reference="huanzhang12/ZOO-Attack",
    )
    access = ScoreAccess
    norms = (L2,)
    seeks_minimum = True

    search_steps: int = 1
    steps: int = 1000
    samples: int = 128
    """Values of the image that one step changes, each by two queries."""
    rate: float = 0.01
    initial_c: float = 0.5
    h: float = 1e-3  # the authors' 1e-4 drowns second differences in the rounding of float32
    """Distance of the queried points from the image."""
    solver: str = "adam"
    """adam or newton."""
    importance: bool = True
    """Whether regions that changed most are chosen most often."""
    side: int = 32
    abort_early: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver not in SOLVERS:
            raise BadRequest(f"ZOO: solver must be one of {', '.join(SOLVERS)}, not {self.solver!r}.")

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Search for the smallest c at which the descent succeeds."""
        search = PenaltySearch.start(self.initial_c, x0)
        for _ in range(self.search_steps):
            succeeded = self._descend(view.subset(torch.ones_like(search.c, dtype=torch.bool)), search.c)
            search = PenaltySearch(*view.drop_finished(*search.next(succeeded).tensors))
        return view.ball.centre

    def _descend(self, view: ScoreAccess, c: Tensor) -> Tensor:
        """Minimise the loss at each row's c; return which rows succeeded on the way."""
        basis = PatternBasis.of(view.ball.centre, coarse(self.side, "linear"))
        succeeded, row = torch.zeros_like(c, dtype=torch.bool), torch.arange(len(c), device=c.device)
        lowest = previous = torch.full_like(c, torch.inf)
        delta = torch.zeros(len(c), basis.size, device=c.device)
        weights, state = torch.ones_like(delta), torch.zeros(len(c), 3, basis.size, device=c.device)
        asked = min(self.samples, basis.size)
        for step in range(self.steps):
            x = (view.ball.centre + basis.paint(delta)).clamp(0, 1)
            loss, logits = _loss(view, x, c)
            succeeded[row[view.goal.reached(logits)]] = True
            lowest = torch.minimum(lowest, loss)
            if self.abort_early and step and step % max(SHORTEST, self.steps // 10) == 0:
                going, previous = lowest <= 0.9999 * previous, lowest
                view = view.subset(going)
                row, c, lowest, previous, delta, weights, state, x, loss = (
                    tensor[going] for tensor in (row, c, lowest, previous, delta, weights, state, x, loss)
                )
            row, c, lowest, previous, delta, weights, state, x, loss = view.drop_finished(
                row, c, lowest, previous, delta, weights, state, x, loss
            )
            if not len(row):
                break
            if self.importance and step % -(-basis.size // asked) == 0:  # once per pass over all values
                weights = _importance(delta, basis)
            chosen = _choose(view, weights, asked)
            gradient, curvature = self._differences(view, basis, x, c, loss, chosen)
            move = _adam(state, chosen, gradient) if self.solver == "adam" else gradient / _above_zero(curvature)
            delta = _inside(delta.scatter_add(1, chosen, -self.rate * move), view.ball.centre)
        return succeeded

    def _differences(
        self, view: ScoreAccess, basis: PatternBasis, x: Tensor, c: Tensor, loss: Tensor, chosen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the first and second differences of the loss along some values of each row."""
        firsts, seconds = [], []
        for start in range(0, chosen.shape[1], BLOCK):
            index = chosen[:, start : start + BLOCK]
            pattern = self.h * basis.pattern(index)
            points = (x[:, None] + torch.cat((pattern, -pattern), 1)).clamp(0, 1)
            ahead, behind = _loss(view, points, c)[0].chunk(2, 1)
            firsts.append((ahead - behind) / (2 * self.h))
            seconds.append((ahead - 2 * loss[:, None] + behind) / self.h**2)
        return torch.cat(firsts, 1).float(), torch.cat(seconds, 1).float()


def _loss(view: ScoreAccess, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return |x - x0|^2 + c * hinge in float64, and the logits; log-probabilities have the margin of logits."""
    logits = view.scores(x)
    hinge = view.goal.margin(logits).double().clamp(min=0)
    return view.ball.distance(x).square() + per_row(c, hinge) * hinge, logits


def _importance(delta: Tensor, basis: PatternBasis) -> Tensor:
    """Weigh each value by the largest change in its region; all alike while nothing has changed."""
    _, rows, columns = basis.grid
    change = delta.abs().view(-1, *basis.grid)
    pooled = F.adaptive_max_pool2d(change, (min(POOLS, rows), min(POOLS, columns)))
    spread = F.interpolate(pooled, size=(rows, columns), mode="nearest").flatten(1)
    largest = spread.amax(1, keepdim=True)
    return torch.where(largest > 0, spread / largest, 1.0).clamp(min=FLOOR)


def _choose(view: ScoreAccess, weights: Tensor, count: int) -> Tensor:
    """Draw values without replacement, in proportion to their weights: the largest of log w plus Gumbel noise."""
    uniform = view.rng.uniform(weights.shape[1]).double()
    gumbel = -(-(uniform + 2.0**-25).log()).log()
    return (weights.double().log() + gumbel).topk(count, 1).indices


def _adam(state: Tensor, chosen: Tensor, gradient: Tensor) -> Tensor:
    """Return Adam's move of the chosen values, each with its own moments and its own count of steps."""
    mean, square, count = (part.gather(1, chosen) for part in state.unbind(1))
    (mean, square), count = adam.update_moments(mean, square, gradient), count + 1
    for k, part in enumerate((mean, square, count)):
        state[:, k].scatter_(1, chosen, part)
    return adam.direction(mean, square, count)


def _above_zero(curvature: Tensor) -> Tensor:
    """Replace curvatures that are negative by one and small ones by a tenth, as the authors do."""
    return torch.where(curvature < 0, 1.0, curvature).clamp(min=0.1)


def _inside(delta: Tensor, centre: Tensor) -> Tensor:
    """Keep each value in the box, where the grid is the image; a coarse one is clipped when painted."""
    if delta.shape[1] != centre[0].numel():
        return delta
    flat = centre.flatten(1)
    return torch.maximum(torch.minimum(delta, 1 - flat), -flat)
