"""Simple black-box attack."""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import attack_loss
from robustassay.attacks.common.patterns import PatternBasis, Patterns, cosines, pixels
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import ScoreAccess
from robustassay.threat import L2, LInf, per_row, where_rows

BASES: Final[dict[str, Patterns]] = {"dct": cosines, "pixel": pixels}

BANDS: Final = 8
"""Waves are tried in so many bands, low frequencies first; the authors use the lowest eighth of each side."""


@final
@register("attack", "simba")
@dataclass(frozen=True)
class SimBA(Attack[ScoreAccess]):
    """Adds or subtracts one pixel or cosine wave at a time, and keeps what helps (Guo et al. 2019, arXiv:1905.07121).

    A trial is projected into the ball, and kept if it lowers the goal's margin. Each pattern is tried once in random
    order, waves from low to high frequency bands; then all again.
    """

    info = AttackInfo(
        papers=("1905.07121",),
        formula="q: a random pattern of the basis, each once\n"
        "x' = P(x +- rel_step * eps * q / |q|); keep x' if m(x') < m(x)",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 20_000
    """Queries per sample, at most, the first and the last point included."""
    rel_step: float = 0.2
    """Size of a trial, as a part of eps."""
    basis: str = "dct"
    """Patterns that are tried: dct (cosine waves) or pixel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.basis not in BASES:
            raise BadRequest(f"SimBA: basis must be one of {', '.join(BASES)}, not {self.basis!r}.")

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Try one pattern per query; each row has its own order."""
        patterns = PatternBasis.of(x0, BASES[self.basis])
        bands = (
            _bands(patterns, x0.device) if self.basis == "dct" else torch.zeros(patterns.size, device=x0.device).long()
        )
        order, at = _shuffled(view, bands), torch.zeros(len(x0), dtype=torch.int64, device=x0.device)
        sign, highest = x0.new_zeros(len(x0)), x0.new_full((len(x0),), -torch.inf)
        x = x_new = x0
        for _ in range(self.steps - 1):
            here = attack_loss(view, x_new)
            better = here > highest
            x = where_rows(better, x_new, x)
            highest = torch.where(better, here, highest)
            x, highest, sign, better, order, at = view.drop_finished(x, highest, sign, better, order, at)

            moves_on = better | (sign < 0)  # minus was the last trial of this pattern
            at = at + (moves_on & (sign != 0))
            sign = torch.where(moves_on, 1.0, -1.0)
            if (again := at == patterns.size).any():
                at = at.masked_fill(again, 0)
                order[again] = _shuffled(view.subset(again), bands)
            pattern = patterns.pattern(order.gather(1, at[:, None]))[:, 0]
            size = view.ball.norm.size(pattern.flatten(1)).float()
            x_new = view.ball.project(x + per_row(sign * self.rel_step * view.ball.eps / size, x) * pattern)
        return x_new


def _bands(patterns: PatternBasis, device: torch.device) -> Tensor:
    """Return the band of every wave: the higher of its two frequencies, in eighths of the side."""
    channels, rows, columns = patterns.grid
    down = torch.arange(rows, device=device) * BANDS // rows
    across = torch.arange(columns, device=device) * BANDS // columns
    return torch.maximum(down[:, None], across).expand(channels, -1, -1).flatten()


def _shuffled(view: ScoreAccess, bands: Tensor) -> Tensor:
    """Draw an order of all patterns for each row, random within a band."""
    return (bands * len(bands) + view.rng.permutation(len(bands))).argsort(1)
